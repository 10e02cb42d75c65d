"""Downloads end with the right file or with none, whatever the server does."""

import contextlib
import functools
import hashlib
import subprocess
import sys
import threading
import time

import pytest

from benchmarks.data import fetch as module
from benchmarks.data.fetch import FetchError
from tests.benchmarks.data.server import Answer, serving

BODY = bytes(range(256)) * 40
HALF = len(BODY) // 2
MD5 = "md5:" + hashlib.md5(BODY).hexdigest()
SHA256 = "sha256:" + hashlib.sha256(BODY).hexdigest()
OTHER = BODY[::-1]
# More than is buffered before it is written.
LONG = BODY * 100
MD5_OF_LONG = "md5:" + hashlib.md5(LONG).hexdigest()
fetch = functools.partial(module.fetch, timeout=60.0, pause=0.001)


def tagged(tag='"1"', **more):
    return (("ETag", tag), *more.items())


def rest(request, tag='"1"', body=BODY):
    """The part asked for."""
    span = f"bytes {request.start}-{len(body) - 1}/{len(body)}"
    headers = (("ETag", tag), ("Content-Range", span))
    return Answer(body[request.start :], 206, headers)


TAGGED = tagged()


def first_half(body=BODY, headers=TAGGED, **more):
    return Answer(body[: len(body) // 2], headers=headers, length=len(body), **more)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "data" / "set.bin"


def files(target):
    return sorted(p.name for p in target.parent.iterdir())


@pytest.mark.parametrize("checksum", [MD5, SHA256, None])
def test_whole(target, checksum):
    with serving(lambda n, request: Answer(BODY)) as server:
        fetch(f"{server.address}/set.bin", target, checksum=checksum)
    assert target.read_bytes() == BODY
    assert files(target) == ["set.bin"]
    assert len(server.requests) == 1
    assert server.requests[0].range is None


def test_without_a_length(target):
    with serving(lambda n, request: Answer(BODY, length=None)) as server:
        fetch(server.address, target, checksum=MD5)
    assert target.read_bytes() == BODY


@pytest.mark.parametrize("stall", [True, False])
@pytest.mark.parametrize(
    "headers", [tagged(), (("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"),)]
)
def test_continues_after_a_stall_or_an_early_end(target, stall, headers):
    def script(n, request):
        if n == 1:
            return first_half(headers=headers, stall=stall)
        return rest(request, tag=headers[0][1])._replace(
            headers=(headers[0], ("Content-Range", f"bytes {HALF}-{len(BODY) - 1}/*"))
        )

    with serving(script) as server:
        fetch(server.address, target, checksum=MD5, timeout=2.0)
    assert target.read_bytes() == BODY
    assert server.requests[1].range == f"bytes={HALF}-"
    assert server.requests[1].if_range == headers[0][1]
    assert files(target) == ["set.bin"]


def test_stalls_before_the_headers_and_then_answers(target):
    with serving(lambda n, request: Answer(BODY)) as server:

        def script(n, request):
            if n == 1:
                server.released.wait(60)
            return Answer(BODY)

        server.script = script
        fetch(server.address, target, checksum=MD5, timeout=2.0)
        server.released.set()
    assert target.read_bytes() == BODY
    assert len(server.requests) == 2


def test_a_server_that_ignores_range(target):
    def script(n, request):
        return first_half() if n == 1 else Answer(BODY, headers=tagged())

    with serving(script) as server:
        fetch(server.address, target, checksum=MD5)
    assert target.read_bytes() == BODY


def test_a_file_that_changes_is_not_glued(target):
    def script(n, request):
        if n == 1:
            return first_half(body=OTHER, headers=tagged('"old"'))
        assert request.if_range == '"old"'
        return Answer(BODY, headers=tagged('"new"'))

    with serving(script) as server:
        fetch(server.address, target, checksum=None)
    assert target.read_bytes() == BODY


def test_a_part_of_another_file_is_not_glued(target):
    def script(n, request):
        if n == 1:
            return first_half(body=OTHER, headers=tagged('"old"'))
        if n == 2:
            return rest(request, tag='"new"')
        assert request.range is None
        return Answer(BODY, headers=tagged('"new"'))

    with serving(script) as server:
        fetch(server.address, target, checksum=None)
    assert target.read_bytes() == BODY
    assert len(server.requests) == 3


def test_a_part_from_another_place_is_not_glued(target):
    def script(n, request):
        if n == 1:
            return first_half()
        if n == 2:
            headers = tagged(**{"Content-Range": f"bytes 0-{len(BODY) - 1}/*"})
            return Answer(BODY, 206, headers)
        return Answer(BODY, headers=tagged())

    with serving(script) as server:
        fetch(server.address, target, checksum=None)
    assert target.read_bytes() == BODY


def test_a_glued_file_with_a_wrong_checksum_is_fetched_whole(target):
    def script(n, request):
        if n == 1:
            return first_half(body=OTHER)
        return rest(request) if request.range else Answer(BODY, headers=tagged())

    with serving(script) as server:
        fetch(server.address, target, checksum=MD5)
    assert target.read_bytes() == BODY
    assert [bool(r.range) for r in server.requests] == [False, True, False]


@pytest.mark.parametrize("headers", [(), (("ETag", 'W/"weak"'),)])
def test_without_a_strong_validator_it_starts_again(target, headers):
    def script(n, request):
        return first_half(headers=headers) if n == 1 else Answer(BODY)

    with serving(script) as server:
        fetch(server.address, target, checksum=MD5)
    assert target.read_bytes() == BODY
    assert server.requests[1].range is None


def test_a_range_that_cannot_be_satisfied(target):
    def script(n, request):
        if n == 1:
            return first_half()
        return Answer(status=416) if request.range else Answer(BODY)

    with serving(script) as server:
        fetch(server.address, target, checksum=MD5)
    assert target.read_bytes() == BODY


@pytest.mark.parametrize("status", [403, 404, 410])
def test_what_is_not_there_is_not_tried_again(target, status):
    with (
        serving(lambda n, request: Answer(status=status)) as server,
        pytest.raises(FetchError, match=f"/set.bin answers {status}"),
    ):
        fetch(f"{server.address}/set.bin", target, checksum=MD5)
    assert len(server.requests) == 1
    assert files(target) == []


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_failure_is_tried_again(target, status):
    def script(n, request):
        return Answer(BODY) if n == 3 else Answer(status=status)

    with serving(script) as server:
        fetch(server.address, target, checksum=MD5)
    assert target.read_bytes() == BODY


def test_gives_up(target):
    with (
        serving(lambda n, request: Answer(status=500)) as server,
        pytest.raises(FetchError, match=r"failed 3 times, at last: .* 500"),
    ):
        fetch(server.address, target, checksum=MD5, tries=3)
    assert len(server.requests) == 3
    assert files(target) == []


def test_nobody_there(target):
    with serving(lambda n, request: Answer()) as server:
        address = server.address
    with pytest.raises(FetchError, match="failed 2 times"):
        fetch(address, target, checksum=None, tries=2)
    assert files(target) == []


@pytest.mark.parametrize(
    "answer",
    [
        Answer(OTHER, headers=tagged()),
        # A length that is too short cuts the file.
        Answer(BODY, length=HALF, headers=tagged()),
    ],
)
def test_a_wrong_file_is_refused(target, answer):
    with (
        serving(lambda n, request: answer) as server,
        pytest.raises(FetchError, match=f"does not have the checksum {MD5}"),
    ):
        fetch(server.address, target, checksum=MD5)
    assert len(server.requests) == 1
    assert files(target) == []


def test_a_server_that_never_ends(target, monkeypatch):
    monkeypatch.setattr(module, "_MOST_BYTES", 5000)
    with (
        serving(lambda n, request: Answer(BODY, length=None)) as server,
        pytest.raises(FetchError, match=r"sends more than 5,000 bytes"),
    ):
        fetch(server.address, target, checksum=None)
    assert len(server.requests) == 1
    assert files(target) == []


def test_a_length_that_is_no_number(target):
    answer = Answer(BODY, length=None, headers=(("Content-Length", "abc"),))
    with (
        serving(lambda n, request: answer) as server,
        pytest.raises(FetchError, match=r"2 times, at last: .* the length 'abc'"),
    ):
        fetch(server.address, target, checksum=None, tries=2)
    assert files(target) == []


def test_a_length_that_is_too_long(target):
    with (
        serving(lambda n, request: Answer(BODY, length=len(BODY) + 1)) as server,
        pytest.raises(FetchError, match=r"after 10,240 of 10,241 bytes"),
    ):
        fetch(server.address, target, checksum=None, tries=2)
    assert files(target) == []


def test_the_next_call_continues(target):
    def script(n, request):
        if n == 1:
            return first_half()
        return rest(request) if n == 3 else Answer(status=404)

    with serving(script) as server:
        with pytest.raises(FetchError):
            fetch(server.address, target, checksum=MD5)
        assert not target.exists()
        assert files(target) == [".set.bin.part"]
        fetch(server.address, target, checksum=MD5)
    assert target.read_bytes() == BODY
    assert server.requests[2].range == f"bytes={HALF}-"
    assert files(target) == ["set.bin"]


def test_an_interrupt_keeps_what_arrived(target, monkeypatch):
    def interrupt(seconds):
        raise KeyboardInterrupt

    with serving(lambda n, request: first_half()) as server:
        monkeypatch.setattr(module.time, "sleep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fetch(server.address, target, checksum=MD5)
        server.script = lambda n, request: rest(request)
        assert not target.exists()
        fetch(server.address, target, checksum=MD5)
    assert target.read_bytes() == BODY
    assert server.requests[1].start == HALF


def test_the_pauses_double(target, monkeypatch):
    pauses = []
    monkeypatch.setattr(module.time, "sleep", pauses.append)
    with (
        serving(lambda n, request: Answer(status=500)) as server,
        pytest.raises(FetchError),
    ):
        fetch(server.address, target, checksum=None, tries=4, pause=0.5)
    assert pauses == [0.5, 1.0, 2.0]


@pytest.fixture
def start():
    """Fetches in processes of their own, which say when they begin."""
    code = (
        "import pathlib, sys; from benchmarks.data.fetch import fetch; "
        "print('begins', flush=True); "
        "fetch(sys.argv[1], pathlib.Path(sys.argv[2]), checksum=sys.argv[3], pause=0)"
    )
    with contextlib.ExitStack() as stack:

        def run(address, target):
            command = [sys.executable, "-c", code, address, target, MD5_OF_LONG]
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout.readline() == b"begins\n"
            return process

        yield run


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def half_at_first(n, request):
    """Sends a half and then nothing to the first, and the rest to the second."""
    return first_half(LONG, stall=True) if n == 1 else rest(request, body=LONG)


def test_a_killed_process_is_continued(target, start):
    data = target.parent / ".set.bin.part" / "data"
    with serving(half_at_first) as server:
        process = start(server.address, target)
        wait_until(lambda: data.exists() and data.stat().st_size)
        process.kill()
        process.wait()
        assert files(target) == [".set.bin.part"]
        arrived = data.stat().st_size
        fetch(server.address, target, checksum=MD5_OF_LONG)
    assert [r.range for r in server.requests] == [None, f"bytes={arrived}-"]
    assert target.read_bytes() == LONG
    assert files(target) == ["set.bin"]


def test_two_processes_share_a_download(target, start):
    with serving(half_at_first) as server:
        first = start(server.address, target)
        wait_until(lambda: server.requests)
        second = start(server.address, target)
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(0.2)
        assert len(server.requests) == 1
        # The connection ends, and the first process asks for the rest.
        server.released.set()
        assert [first.wait(60), second.wait(60)] == [0, 0]
    assert [bool(r.range) for r in server.requests] == [False, True]
    assert target.read_bytes() == LONG
    assert files(target) == ["set.bin"]


def test_who_waited_continues_what_failed(target):
    failures = []

    def run():
        try:
            fetch(server.address, target, checksum=MD5_OF_LONG, tries=1)
        except FetchError as error:
            failures.append(str(error))

    with serving(half_at_first) as server:
        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        wait_until(lambda: server.requests)
        server.released.set()
        for thread in threads:
            thread.join()
    assert len(failures) == 1
    assert "failed 1 times, at last: the connection ended after" in failures[0]
    assert [r.start for r in server.requests] == [0, len(LONG) // 2]
    assert target.read_bytes() == LONG
    assert files(target) == ["set.bin"]


def test_a_right_file_in_place_is_left(target):
    """As a process finds it that waited for another."""
    target.parent.mkdir()
    with serving(lambda n, request: Answer(BODY)) as server:
        target.write_bytes(OTHER)
        for _ in range(2):
            fetch(server.address, target, checksum=MD5)
            assert target.read_bytes() == BODY
    assert len(server.requests) == 1
    assert files(target) == ["set.bin"]


@pytest.mark.parametrize("locks", [True, False])
def test_several_at_once(target, monkeypatch, locks):
    if not locks:
        monkeypatch.setitem(sys.modules, "fcntl", None)
    failures = []

    def script(n, request):
        # Nobody has the file before all who may ask have asked.
        return rest(request) if request.range else first_half(stall=True)

    def run():
        try:
            fetch(server.address, target, checksum=MD5)
        except Exception as error:
            failures.append(error)

    with serving(script) as server:
        threads = [threading.Thread(target=run) for _ in range(6)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(server.requests) == (1 if locks else 6))
        server.released.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert len(server.requests) == (2 if locks else 12)
    assert target.read_bytes() == BODY
    assert files(target) == ["set.bin"]
