"""A command with tritonserver's options that serves a repository by `bls.endpoint`, for NVIDIA's own tests.

Usage: python docs/tritonserver.py --model-repository=DIR [options of tritonserver]. Options that do not concern the
models or the protocols, such as those of logs and traces, have no effect.
"""

from __future__ import annotations

import argparse
import http.server
import logging
import signal
import sys
import threading
from typing import Any

import bls_notebook as bls
from bls_notebook.repository.call_order import load_with_callees


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tritonserver", allow_abbrev=False)
    for name in ("model-repository", "model-store", "load-model", "http-restricted-api", "grpc-restricted-protocol"):
        parser.add_argument(f"--{name}", action="append", default=[])
    for name, default in (("http-port", 8000), ("grpc-port", 8001), ("metrics-port", 8002), ("log-verbose", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--model-control-mode", type=str.lower, choices=["none", "poll", "explicit"])
    parser.add_argument("--repository-poll-secs", type=float)
    parser.add_argument("--response-cache-byte-size", type=int, default=0)
    for name in ("backend-directory", "exit-on-error", "cache-config", "allow-metrics"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--http-max-input-size", type=int, default=64 << 20)
    parser.add_argument("--exit-timeout-secs", type=float, default=30.0)
    parser.add_argument("--allow-client-shm", default="false")
    parser.add_argument("--strict-readiness", default="true")
    parser.add_argument("--model-config-name", default="")
    parser.add_argument("--model-namespacing", default="false")
    parser.add_argument("--metrics-config", action="append", default=[])
    parser.add_argument("--rate-limit", default="off")
    parser.add_argument("--rate-limit-resource", action="append", default=[])
    for name in ("http-header-forward-pattern", "grpc-header-forward-pattern"):
        parser.add_argument(f"--{name}", default="")
    arguments, ignored = parser.parse_known_args()
    if ignored:
        print(f"without effect: {' '.join(ignored)}", file=sys.stderr)
    return arguments


def _is_true(text: str) -> bool:
    return text.lower() not in ("false", "0")


class _Repository(bls.ModelRepository):
    def load(self, name: str, *arguments: Any, **options: Any) -> Any:
        record = super().load(name, *arguments, **options)
        print(f"successfully loaded '{name}'", file=sys.stderr, flush=True)
        return record


def _repository(arguments: argparse.Namespace) -> bls.ModelRepository:
    mode: Any = arguments.model_control_mode
    seconds = arguments.repository_poll_secs
    mode = mode or ("poll" if seconds else "none")
    cache = arguments.response_cache_byte_size
    if arguments.cache_config and "size=" in arguments.cache_config:
        cache = int(arguments.cache_config.partition("size=")[2])
    return _Repository(
        [*arguments.model_repository, *arguments.model_store], control_mode=mode, poll_seconds=seconds or 15.0,
        cache_bytes=cache, backend_directory=arguments.backend_directory,
        model_config_name=arguments.model_config_name, model_namespacing=_is_true(arguments.model_namespacing),
        metrics_config=dict(setting.partition("=")[::2] for setting in arguments.metrics_config),
        rate_limit=arguments.rate_limit, rate_limit_resources=arguments.rate_limit_resource,
    )  # fmt: skip


def _serve_metrics(repository: bls.ModelRepository, port: int) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = repository.metrics.text().encode()
            self.send_response(200 if self.path == "/metrics" else 404)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.end_headers()
            self.wfile.write(text if self.path == "/metrics" else b"")

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main() -> int:
    """Serve until SIGTERM or SIGINT; return the exit status."""
    arguments = _arguments()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    if arguments.log_verbose:
        logging.getLogger("bls_notebook").setLevel(logging.DEBUG)
    sys.argv = [""]  # unittest.main in models reads it
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with _repository(arguments) as repository:
        names = arguments.load_model
        for name in names:
            try:
                if name == "*":
                    load_with_callees(repository, [])
                else:
                    repository.load(name)
            except bls.BLSError as error:
                print(error, getattr(error, "reason", ""), file=sys.stderr)
        states = {row.name: row for row in repository.index() if row.reason != "not loaded"}
        failed = [row for row in states.values() if row.state != "READY"]
        missing = [name for name in names if name != "*" and name not in states]
        if (failed or missing) and _is_true(str(arguments.exit_on_error)):
            print("error: creating server: Internal - failed to load all models", file=sys.stderr)
            return 1
        with bls.endpoint(
            repository, token="", http_port=arguments.http_port, grpc_port=arguments.grpc_port,
            http_restricted_api=arguments.http_restricted_api,
            grpc_restricted_protocol=arguments.grpc_restricted_protocol,
            http_header_forward_pattern=arguments.http_header_forward_pattern,
            grpc_header_forward_pattern=arguments.grpc_header_forward_pattern,
            http_max_input_size=arguments.http_max_input_size, exit_timeout_secs=arguments.exit_timeout_secs,
            allow_client_shm=_is_true(arguments.allow_client_shm),
            strict_readiness=_is_true(arguments.strict_readiness),
        ):  # fmt: skip
            if _is_true(str(arguments.allow_metrics)):
                _serve_metrics(repository, arguments.metrics_port)
            print("started", file=sys.stderr, flush=True)
            stopped.wait()
            repository.close(arguments.exit_timeout_secs)  # the log settings of clients apply to `finalize`, too
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except bls.BLSError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
