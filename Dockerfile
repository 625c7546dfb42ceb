# syntax=docker/dockerfile:1
# One image for the Dask scheduler, the workers and Airflow; helm/gnnflow installs it.
#   docker build -t gnnflow:0.1.0 .
# PyPI's torch for Linux brings CUDA and is several gigabytes larger than the build without; the index of the smaller one
# is named on PyTorch's installation page:
#   docker build --build-arg TORCH_INDEX=URL -t gnnflow:0.1.0 .
ARG PYTHON_TAG=3.12-slim-trixie

FROM python:${PYTHON_TAG} AS build
# Extras of this package, and what belongs in the image beside it: Dask's dashboard and metrics, and for Airflow its
# metrics and the providers for its users, database, executors and logs.
# Without Airflow: --build-arg EXTRAS=s3 --build-arg BESIDE="bokeh prometheus-client"
ARG EXTRAS=airflow,s3
ARG BESIDE="bokeh prometheus-client statsd apache-airflow-providers-fab apache-airflow-providers-postgres apache-airflow-providers-cncf-kubernetes apache-airflow-providers-amazon"
ARG TORCH_INDEX=""
RUN python -m venv /opt/gnnflow
ENV PATH=/opt/gnnflow/bin:$PATH VIRTUAL_ENV=/opt/gnnflow
# For the native kernels, which are compiled when the package is installed. The base image's release says which version.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
# .dockerignore lets through what is installed, and nothing else.
COPY . .
# uv, because pip searches for many minutes before it finds versions of these packages that agree.
# One command installs all of them; the list is split into words on purpose (SC2086).
# hadolint ignore=SC2086
RUN pip install --no-cache-dir uv==0.13.8 \
    && if [ -n "$TORCH_INDEX" ]; then uv pip install --no-cache --index-url "$TORCH_INDEX" "torch>=2.9,<2.14"; fi \
    && uv pip install --no-cache ".[${EXTRAS}]" ${BESIDE} \
    && pip uninstall --yes uv

FROM python:${PYTHON_TAG}
ARG REVISION=unknown
LABEL org.opencontainers.image.title=gnnflow \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.revision=${REVISION}
# Airflow's chart calls /entrypoint in its probes and expects this user and this home.
RUN groupadd --gid 50000 gnnflow \
    && useradd --uid 50000 --gid 50000 --home-dir /opt/airflow --no-create-home --shell /usr/sbin/nologin gnnflow \
    && install --directory --owner=50000 --group=50000 /opt/airflow /opt/airflow/logs \
    && printf '#!/bin/sh\nexec "$@"\n' > /entrypoint \
    && chmod 0555 /entrypoint
COPY --from=build /opt/gnnflow /opt/gnnflow
COPY --from=build /source/dags /opt/airflow/dags
COPY --from=build /source/configs /opt/airflow/configs
# GNNFLOW_SERVICE: what runs from this image serves others, so a config imports no code and reads no variable but
# GNNFLOW_* unless the variables in docs/config.md say so.
ENV PATH=/opt/gnnflow/bin:$PATH \
    AIRFLOW_HOME=/opt/airflow \
    PYTHONUNBUFFERED=1 \
    GNNFLOW_SERVICE=1
USER 50000:50000
WORKDIR /opt/airflow
# No HEALTHCHECK: each pod has probes of its own.
ENTRYPOINT ["/entrypoint"]
CMD ["gnnflow", "--help"]
