# One image for web, worker, beat and watcher; the command says which.
FROM python:3.11-slim AS packages
ENV PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /srv/venv
COPY requirements.txt ./
RUN /srv/venv/bin/pip install --no-cache-dir --require-hashes -r requirements.txt

# What built the environment stays behind.
FROM python:3.11-slim
ENV PATH=/srv/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /srv/hamiacct
COPY --from=packages /srv/venv /srv/venv
COPY manage.py ./
COPY hamiacct ./hamiacct
COPY api ./api

# A name for the user, whom Celery takes for root without one; by number, so that a cluster can see that it is not.
RUN groupadd --gid 10001 hamiacct && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin hamiacct
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
CMD ["python", "-m", "hamiacct.server", "--host", "0.0.0.0"]
