#!/bin/sh
# The cargo that maturin is given. Alone, the module's dependencies have fewer features than beside
# the tests, and all of them would be compiled twice: the module is built along with the tests.
cargo=${IOPATH_CARGO:-cargo}
[ "$1" = rustc ] || exec "$cargo" "$@"
shift
rustc=
for word; do
  shift
  case $word in
    --) rustc=yes ;;
    --lib | --crate-type | cdylib | --manifest-path | *crates/python/Cargo.toml) ;;
    *) [ -n "$rustc" ] || set -- "$@" "$word" ;;
  esac
done
exec "$cargo" build --workspace --lib --tests "$@"
