#!/bin/sh
# `make chart`: what the chart makes of its cases (hamiacct/ci), for the tests, which have no Helm. Needs `helm` 3.
# The first line names the chart it was made from, so that a test can tell when this has to be run again.
set -eu
cd "$(dirname "$0")"
sources() { find -L hamiacct -type f ! -path '*/ci/*' | LC_ALL=C sort | xargs cat | sha256sum | cut -d' ' -f1; }
for values in hamiacct/ci/*-values.yaml; do
    name=$(basename "$values" -values.yaml)
    rendered=$(helm template hamiacct hamiacct --namespace gpu-accounts --kube-version 1.31.0 --values "$values")
    printf '# chart %s, values %s\n%s\n' "$(sources)" "$(sha256sum <"$values" | cut -d' ' -f1)" "$rendered" \
        >"../../tests/data/chart/$name.yaml"
done
