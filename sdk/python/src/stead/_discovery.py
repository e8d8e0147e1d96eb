"""Finds the server: its URL, its token and the certificate it must have. Connects to nothing."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

DEFAULT_URL = "http://127.0.0.1:7832"


@dataclass(frozen=True)
class ServerAddress:
    """Where the server is and how to authenticate."""

    url: str
    token: str | None
    tls: ssl.SSLContext | None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def _is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")


def _pinned(certificate: Path) -> ssl.SSLContext:
    """Trusts exactly the certificate that a server wrote to its home, whatever its host name."""
    end = "-----END CERTIFICATE-----"
    # Only the first certificate: those after it are authorities, which sign other names, too.
    first = certificate.read_text(encoding="ascii").split(end)[0] + end
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=first)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def find_server(
    url: str | None = None,
    token: str | None = None,
    *,
    home: str | os.PathLike[str] | None = None,
    cacert: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> ServerAddress:
    """Finds a server the way the command line does.

    Arguments come first, then `STEAD_URL`, `STEAD_TOKEN`, `STEAD_CACERT` and `STEAD_HOME`, then the server that
    runs in the home directory, `~/.stead` by default. The token of the home directory is sent only to its own
    server and to this machine.
    """
    directory = Path(home or environment.get("STEAD_HOME") or Path.home() / ".stead")
    local = _read(directory / "address")
    chosen = url or environment.get("STEAD_URL") or local or DEFAULT_URL
    chosen = chosen.rstrip("/")
    if urlsplit(chosen).scheme not in ("http", "https") or not urlsplit(chosen).netloc:
        raise ValueError(f"{chosen!r}: expected http://HOST:PORT or https://HOST:PORT")
    secret = token or environment.get("STEAD_TOKEN")
    if secret is None and (chosen == local or _is_loopback(chosen)):
        secret = _read(directory / "token")
    tls = None
    if chosen.startswith("https:"):
        authorities = cacert or environment.get("STEAD_CACERT")
        certificate = directory / "certificate.pem"
        if authorities is None and chosen == local and certificate.exists():
            tls = _pinned(certificate)
        else:
            tls = ssl.create_default_context(cafile=authorities)
    return ServerAddress(chosen, secret, tls)
