#!/bin/sh
# Serve the models with Dynamo: clients use the KServe gRPC protocol on port 8001. Needs an image with Dynamo and
# Triton, and at least ${shm} MiB of /dev/shm. Arguments are passed to the worker.
set -eu
cd "$$(dirname "$$0")"
export DYN_DISCOVERY_BACKEND="$${DYN_DISCOVERY_BACKEND:-file}" # worker and frontend find each other through files on this machine
python3 -m dynamo.frontend --kserve-grpc-server --http-port 8001 &
trap 'kill $$!' EXIT INT TERM
python3 -m dynamo.triton --model-repository "$$PWD" "$$@"
