# One image for web, worker, beat and watcher; the command says which.
FROM python:3.11-slim

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /srv/hamiacct
COPY requirements.txt ./
RUN pip install --no-cache-dir --require-hashes -r requirements.txt
COPY manage.py ./
COPY hamiacct ./hamiacct
COPY api ./api

# By number, so that a cluster can see that it is not root.
USER 10001:10001
EXPOSE 8000
CMD ["python", "-m", "hamiacct.server", "--host", "0.0.0.0"]
