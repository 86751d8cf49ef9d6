#!/bin/sh
# Build the image and serve the models. Arguments are passed to docker run.
set -eu
cd "$$(dirname "$$0")"
docker build --tag triton-models .
exec docker run --rm --shm-size=${shm}m ${docker_gpus}\
    --publish 8000:8000 --publish 8001:8001 --publish 8002:8002 "$$@" triton-models
