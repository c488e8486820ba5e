# The image of posencd, posenc and posenc-load, for amd64 and arm64. The building machine
# compiles them, with Debian's libraries of the image's architecture; nothing is
# emulated. The image has these libraries, a shell and coreutils. See deploy/image.sh.
#
# GRPC is the image's gRPC: 1.51, from Debian 12, or 1.83, from Debian's
# experimental on unstable. SECURITY.md explains the choice.
ARG GRPC=1.51
ARG STABLE=debian:bookworm-slim
ARG UNSTABLE=debian:sid-slim
ARG BUILDPLATFORM

FROM --platform=$BUILDPLATFORM ${STABLE} AS grpc-1.51
ENV RUNTIME="libgrpc++1.51 libprotobuf32 libprometheus-cpp-core1.0 libmicrohttpd12"

FROM --platform=$BUILDPLATFORM ${UNSTABLE} AS grpc-1.83
ENV RUNTIME="libgrpc++1.83 libprotobuf36 libprometheus-cpp-core1.0 libmicrohttpd12t64"
RUN mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1) && \
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror experimental main" \
      >/etc/apt/sources.list.d/experimental.list && \
    printf 'Package: src:grpc src:protobuf\nPin: release a=experimental\nPin-Priority: 900\n' \
      >/etc/apt/preferences.d/experimental

FROM grpc-${GRPC} AS build
ARG TARGETARCH
COPY scripts/sysroot.sh deploy/sbom.sh /
RUN case $TARGETARCH in arm64) triple=aarch64-linux-gnu ;; *) triple=x86_64-linux-gnu ;; esac && \
    echo "$triple" >/triple && \
    if [ "$TARGETARCH" = "$(dpkg --print-architecture)" ]; then compiler=g++; \
    else compiler=g++-$(echo "$triple" | tr _ -); fi && \
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
      --no-install-recommends cmake ninja-build pkg-config protobuf-compiler \
      protobuf-compiler-grpc "$compiler" && \
    /sysroot.sh "$TARGETARCH" /sysroot libc6-dev \
      "libstdc++-$("$triple-g++" -dumpversion)-dev" libgrpc++-dev libprotobuf-dev \
      libabsl-dev libxsimd-dev nlohmann-json3-dev libcli11-dev libssl-dev zlib1g-dev \
      prometheus-cpp-dev libmicrohttpd-dev libtomlplusplus-dev && \
    ln -sf /usr/bin/protoc* /usr/bin/grpc_*_plugin /sysroot/usr/bin/ && \
    mkdir -p /usr/include && ln -sfn /sysroot/usr/include/google /usr/include/google && \
    /sysroot.sh "$TARGETARCH" /image base-files bash coreutils dash $RUNTIME && \
    find /image/usr/share/doc ! -type d ! -name copyright -delete && \
    rm -rf /image/packages /image/usr/share/info /image/usr/share/locale \
      /image/usr/share/man
COPY CMakeLists.txt VERSION /src/
COPY cmake /src/cmake
COPY proto /src/proto
COPY core /src/core
COPY server /src/server
COPY client /src/client
# Compiles for the architecture's baseline: the server selects kernels at its
# start.
ARG JOBS=2
RUN triple=$(cat /triple) && \
    cmake -S /src -B /build -G Ninja -DCMAKE_TOOLCHAIN_FILE=/src/cmake/sysroot.cmake \
      -DPOSENC_TRIPLE="$triple" -DPOSENC_SYSROOT=/sysroot -DCMAKE_BUILD_TYPE=Release \
      -DPOSENC_BUILD_TESTS=OFF -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" \
      -DCMAKE_CXX_FLAGS="-D_FORTIFY_SOURCE=2 -fstack-protector-strong" \
      -DCMAKE_EXE_LINKER_FLAGS="-Wl,-z,relro,-z,now" && \
    ninja -C /build -j "$JOBS" posencd posenc posenc-load
RUN mkdir -p /image/usr/local/bin && \
    install -s --strip-program="$(cat /triple)-strip" /build/bin/posencd /build/bin/posenc \
      /build/bin/posenc-load /image/usr/local/bin/
ARG VERSION=0.0.0
ARG SOURCE_DATE_EPOCH=0
RUN mkdir -p /image/usr/share/doc/posenc && \
    /sbom.sh "$VERSION" "$SOURCE_DATE_EPOCH" /image \
      >/image/usr/share/doc/posenc/sbom.spdx.json && \
    find /image -newermt "@$SOURCE_DATE_EPOCH" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +

FROM scratch
ARG VERSION=0.0.0
ARG REVISION=unknown
ARG GRPC=1.51
LABEL org.opencontainers.image.title="posenc" \
      org.opencontainers.image.description="Positional encodings over gRPC" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.licenses="Apache-2.0" \
      posenc.grpc="$GRPC"
COPY --from=build /image /
USER 65532:65532
WORKDIR /tmp
EXPOSE 50051 9090
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=2s --start-period=5s --retries=3 \
  CMD ["posencd", "--probe", "127.0.0.1:50051"]
ENTRYPOINT ["posencd"]
# Listens on every address of the container; the operator must limit access.
CMD ["--listen=0.0.0.0:50051", "--allow-insecure"]
