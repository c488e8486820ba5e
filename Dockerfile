# posencd, and the clients posenc and posenc-load. See deploy/image.sh.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
RUN apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
      --no-install-recommends g++ cmake ninja-build pkg-config libgrpc++-dev \
      libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libabsl-dev \
      libxsimd-dev nlohmann-json3-dev libcli11-dev libssl-dev zlib1g-dev \
      prometheus-cpp-dev libmicrohttpd-dev libtomlplusplus-dev libpng-dev
COPY CMakeLists.txt VERSION /src/
COPY cmake /src/cmake
COPY proto /src/proto
COPY core /src/core
COPY server /src/server
COPY client /src/client
# The baseline of the architecture: kernels are chosen when the server starts.
ARG JOBS=2
RUN cmake -S /src -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release \
      -DPOSENC_BUILD_TESTS=OFF -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" \
      -DCMAKE_CXX_FLAGS="-D_FORTIFY_SOURCE=2 -fstack-protector-strong" \
      -DCMAKE_EXE_LINKER_FLAGS="-Wl,-z,relro,-z,now" && \
    ninja -C /build -j "$JOBS" posencd posenc posenc-load && \
    strip /build/bin/posencd /build/bin/posenc /build/bin/posenc-load

FROM ${BASE} AS system
# Left out: what differs from build to build, and is read by nobody.
RUN apt-get update -qq && \
    DEBIAN_FRONTEND=noninteractive apt-get upgrade -y -qq && \
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
      --no-install-recommends libgrpc++1.51 libprotobuf32 zlib1g \
      libprometheus-cpp-core1.0 libmicrohttpd12 libpng16-16 && \
    apt-get clean && \
    rm -rf /var/lib/apt/lists/* /var/cache/apt /var/cache/debconf/* \
      /var/cache/ldconfig /var/log/* /var/lib/dpkg/*-old

FROM system AS sbom
ARG VERSION=0.0.0
ARG SOURCE_DATE_EPOCH=0
COPY deploy/sbom.sh /
COPY --from=build /build/bin/posencd /build/bin/posenc /build/bin/posenc-load /bin/
RUN /sbom.sh "$VERSION" "$SOURCE_DATE_EPOCH" >/sbom.spdx.json

FROM system
ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="posenc" \
      org.opencontainers.image.description="Positional encodings over gRPC" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="debian:bookworm-slim"
COPY --from=sbom /sbom.spdx.json /usr/share/doc/posenc/sbom.spdx.json
COPY --from=build /build/bin/posencd /build/bin/posenc /build/bin/posenc-load /usr/local/bin/
USER 65532:65532
WORKDIR /tmp
EXPOSE 50051 9090
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=2s --start-period=5s --retries=3 \
  CMD ["posencd", "--probe", "127.0.0.1:50051"]
ENTRYPOINT ["posencd"]
# Every address of the container: what may reach them is for who runs it to say.
CMD ["--listen=0.0.0.0:50051", "--allow-insecure"]
