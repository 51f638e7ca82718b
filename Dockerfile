# The image of `lessor`: one static binary on an empty file system, for a user that owns nothing but the folder of its store. Other
# containers reach the address that it listens on: so [server] in lessor.toml needs tls with client_ca, or insecure = true.
#
#     docker build --tag lessor .
#     docker run --rm -p 127.0.0.1:7400:7400 -v ./lessor:/etc/lessor:ro -v lessor:/var/lib/lessor lessor
#
# ./lessor is the folder of lessor.toml. A file that is mounted alone stays the one of the start when another file takes its name, as
# editors do it: the allocator would never see the change.

# Its own system is musl, so that what it builds needs no library.
FROM rust:1.95.0-alpine3.22@sha256:064dfc925d68d1a63f4fd2871bd7dc6e6ea56692989a487185855d62885d90aa AS build
# Symbols are kept for the traces of a panic, and all else that only a debugger reads is not.
ENV CARGO_INCREMENTAL=0 CARGO_PROFILE_RELEASE_STRIP=debuginfo
# A part of the dependencies is C.
RUN apk add --no-cache musl-dev
WORKDIR /src

# Dependencies, in a layer that only another Cargo.toml or Cargo.lock builds again: crates without any code.
COPY Cargo.toml Cargo.lock ./
COPY protocol/Cargo.toml protocol/
COPY holder/Cargo.toml holder/
COPY ledger/Cargo.toml ledger/
COPY files/Cargo.toml files/
COPY tls/Cargo.toml tls/
COPY access/Cargo.toml access/
COPY allocator/Cargo.toml allocator/
COPY client/Cargo.toml client/
COPY client/examples client/examples
COPY sim/Cargo.toml sim/
COPY cli/Cargo.toml cli/
COPY tests/Cargo.toml tests/
COPY tests/gate/Cargo.toml tests/gate/
COPY benches/Cargo.toml benches/
RUN mkdir protocol/src holder/src ledger/src files/src tls/src access/src allocator/src client/src sim/src cli/src tests/src tests/gate/src benches/src \
    && touch protocol/src/lib.rs holder/src/lib.rs ledger/src/lib.rs files/src/lib.rs tls/src/lib.rs access/src/lib.rs allocator/src/lib.rs client/src/lib.rs sim/src/lib.rs tests/src/lib.rs benches/src/lib.rs \
    && touch tests/gate/src/lib.rs \
    && echo 'fn main() {}' > cli/src/main.rs \
    && cargo build --release --locked --package lessor-cli

COPY protocol protocol
COPY holder holder
COPY ledger ledger
COPY files files
COPY tls tls
COPY access access
COPY allocator allocator
COPY client client
COPY sim sim
COPY cli cli
# Files keep their age when they are copied, and older than the empty crates they would not be built.
RUN touch protocol/src/lib.rs holder/src/lib.rs ledger/src/lib.rs files/src/lib.rs tls/src/lib.rs access/src/lib.rs allocator/src/lib.rs client/src/lib.rs sim/src/lib.rs cli/src/main.rs \
    && cargo build --release --locked --package lessor-cli \
    && mkdir /state

FROM scratch
# For a store that is reached over TLS.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /src/target/release/lessor /usr/local/bin/lessor
# A volume that is new takes its owner from here.
COPY --from=build --chown=65532:65532 /state /var/lib/lessor
ENV STATE_DIRECTORY=/var/lib/lessor
USER 65532:65532
EXPOSE 7400
# Liveness, not readiness: an allocator that waits out a quarantine must not be replaced. Where [server] has tls, set LESSOR_SERVER
# to an https:// address of its certificate and LESSOR_CA to the authority; with client_ca also LESSOR_CERT and LESSOR_KEY.
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s CMD ["/usr/local/bin/lessor", "status", "--live"]
ENTRYPOINT ["/usr/local/bin/lessor"]
CMD ["serve", "--config", "/etc/lessor/lessor.toml", "--listen", "0.0.0.0:7400", "--log", "json"]
