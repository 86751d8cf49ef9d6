"""``%tritonrepo connect``, to a small server of the protocol."""

from __future__ import annotations

from tests.network.servers import Service, serving


def test_the_magic(cells) -> None:
    service = Service()
    with serving(service) as port:
        url = f"grpc://127.0.0.1:{port}"
        assert "expected an address" in cells("%tritonrepo connect").stderr
        made = cells(f"%tritonrepo connect {url} echo --name echo=far --header x-token=secret")
        assert "CONNECTED" in made.text
        assert "far is echo" in made.text
        assert '<span class="bls-chip bls-remote"' in made.html
        assert "remote" in cells("%tritonrepo").text
        assert "[1.0, 2.0]" in cells("%bls far X=[1,2]").text
        assert service.metadata[0]["x-token"] == "secret"
        assert "secret" not in made.text + made.html + repr(made.value)
        assert url in cells("%tritonrepo connect").text
        assert "no such connection" in cells("%tritonrepo connect --stop grpc://elsewhere").stderr
        assert "disconnected from" in cells("%tritonrepo connect --stop").text
        assert "no models" in cells("%tritonrepo").text
    refused = cells(f"%tritonrepo connect {url}")
    assert "check that a server runs there" in refused.text + refused.stderr + str(refused.error)
