#!/bin/sh
# Serves the models by Dynamo: clients talk KServe's gRPC to its frontend. For an image that has Dynamo beside
# Triton, with at least ${shm} MiB of /dev/shm. What is given is handed to the worker.
set -eu
cd "$$(dirname "$$0")"
export DYN_DISCOVERY_BACKEND="$${DYN_DISCOVERY_BACKEND:-file}" # where the two find each other: this machine
python3 -m dynamo.frontend --kserve-grpc-server &
trap 'kill $$!' EXIT INT TERM
python3 -m dynamo.triton --model-repository "$$PWD" "$$@"
