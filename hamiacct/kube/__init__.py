"""The wire: what Kubernetes and HAMi write, to and from the types of `hamiacct.accounting`."""
