"""What the adapter refuses, and what it shows: odd names, scopes, settings, services, secrets."""

import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.awsrequest import AWSRequest
from botocore.loaders import Loader
from botocore.session import Session as BotocoreSession
from msgspec.structs import replace

import counterfoil as cf
from counterfoil.adapters.s3 import Times, open_s3
from counterfoil.adapters.s3.adapter import S3Adapter
from counterfoil.adapters.s3.wire import Wire, connect
from counterfoil.core.canonical import digest, encode
from counterfoil.core.errors import (
    ConfigError,
    ContractError,
    CounterfoilError,
    FormatError,
    PermissionDeniedError,
    UnavailableError,
)
from counterfoil.core.receipt import Answer as Found
from counterfoil.core.words import Key
from counterfoil.testing.adapter_bench import FENCE, KEY, RUN
from tests.support.s3_bench import Scene, called, do, scene
from tests.support.s3_proxy import Answer, Fate, Request
from tests.support.s3_server import LocalS3

pytest_plugins = ["tests.support.s3_server"]

ODD_NAMES = ("a b", "a'b", 'a"b', "a%2Fb", "ä€😀", "a+b?c=d&e#f", "a<b>", "a;b|c$d`e`")


@pytest.fixture
def place(s3: LocalS3, tmp_path: Path) -> Generator[Scene]:
    with scene(s3, tmp_path) as made:
        made.put("old.txt", "old")
        yield made


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("name", [pytest.param(n, id=f"T26 {n!a}") for n in ODD_NAMES])
def test_an_odd_name_is_one_object_under_that_very_name(name: str, place: Scene) -> None:
    adapter = place.open()
    key = Key(name)
    do(place, adapter, "put", path=name, content=name, key=key)
    do(place, adapter, "copy", source=name, path=f"copy/{name}", key=Key(f"{name} copy"))
    assert place.objects == {
        "old.txt": b"old",
        name: name.encode(),
        f"copy/{name}": name.encode(),
    }
    assert adapter.look_up(RUN, key, "s3.put").answer is Found.FOUND
    assert do(place, adapter, "get", path=name).result["content"] == name


@pytest.mark.parametrize(
    ("changed", "kind", "arguments"),
    [
        ({"endpoints": ("https://elsewhere.example",)}, "put", {"path": "a", "content": ""}),
        ({"buckets": ("another",)}, "put", {"path": "a", "content": ""}),
        ({"paths": ("b/",)}, "put", {"path": "a", "content": ""}),
        ({"paths": ("a",)}, "copy", {"source": "old.txt", "path": "a"}),
        ({"paths": ("a",)}, "get", {"path": "old.txt"}),
        ({"paths": ("a/",)}, "list", {"path": "."}),
        ({"files": ()}, "upload", {"path": "a", "file": "1.bin", "sha256": "0" * 64}),
    ],
)
def test_what_the_scope_does_not_cover_is_refused(
    changed: dict[str, Any], kind: str, arguments: dict[str, Any], place: Scene
) -> None:
    adapter = place.open(uploads=place.folder)
    sent = replace(called(place, adapter, kind, **arguments), scope={**place.scope, **changed})
    with pytest.raises(PermissionDeniedError):
        adapter.execute(sent)
    assert place.objects == {"old.txt": b"old"}


def test_a_run_refuses_what_is_out_of_scope_before_anything_is_durable(
    place: Scene, tmp_path: Path
) -> None:
    (tmp_path / "project").mkdir()
    place.scope["paths"] = ("inside/",)
    with (
        cf.open(tmp_path / "project", adapters=(place.open(),)) as keeper,
        keeper.run(_task(place, "s3.put"), "r-1") as run,
        pytest.raises(PermissionDeniedError),
    ):
        run.do("s3.put", path="outside.txt", content="")
    assert (place.proxy.effects(), place.objects) == (0, {"old.txt": b"old"})


@pytest.mark.parametrize(
    ("name", "made"),
    [
        pytest.param("1.bin", "link", id="T30 a link"),
        pytest.param("2.bin", "folder", id="T30 a folder"),
        pytest.param("3.bin", "pipe", id="T30 a pipe"),
        pytest.param("4.bin", "empty", id="T30 an empty file"),
    ],
)
def test_only_regular_files_below_the_folder_are_uploaded(
    name: str, made: str, place: Scene
) -> None:
    file = place.folder / name
    match made:
        case "link":
            file.symlink_to("/etc/passwd")
        case "folder":
            file.mkdir()
        case "pipe":
            os.mkfifo(file)
        case _:
            file.touch()
    adapter = place.open(uploads=place.folder)
    with pytest.raises(PermissionDeniedError):
        do(place, adapter, "upload", path="a", file=name, sha256="0" * 64)
    assert place.objects == {"old.txt": b"old"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"prefix": "a"}, "prefix"),
        ({"prefix": "../"}, "prefix"),
        ({"prefix": "a/.Counterfoil/"}, "prefix"),
        ({"part_bytes": 1}, "part_bytes"),
        ({"times": Times(lasts_s=0)}, "lasts_s"),
        ({"times": Times(request_s=4_000)}, "request_s"),
        ({"uploads": Path("/nowhere")}, "uploads"),
        ({"endpoint": "no address"}, "s3"),
        ({"bucket": "No Bucket"}, "bucket"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(
    options: dict[str, Any], told: str, place: Scene
) -> None:
    with pytest.raises(ConfigError, match=told):
        place.open(proves=True, **options)


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1", "us-gov-west-1", "cn-north-1"])
@pytest.mark.parametrize("bucket", ["a-bucket", "a.bucket"])
def test_calls_and_questions_go_to_one_endpoint_of_aws(
    region: str, bucket: str, place: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://elsewhere.example")
    session = boto3.Session(botocore_session=_with_models(), region_name=region)
    wire = Wire(connect(session, None, bucket, 5), bucket=bucket, request_s=5)
    signed = wire.sign("put_object", 5, Key="a b/ä", IfNoneMatch="*")
    suffix = ".amazonaws.com" + (".cn" if region.startswith("cn-") else "")
    for url in (wire.endpoint, signed.url):
        assert str(urlsplit(url).hostname).endswith(suffix)
    wire._stay(AWSRequest(method="PUT", url=signed.url).prepare())
    wire.close()


def test_a_bucket_that_is_not_there_is_named(place: Scene) -> None:
    with pytest.raises(ConfigError, match="missing-bucket"):
        open_s3("missing-bucket", endpoint=place.server.endpoint)


def test_wrong_credentials_are_refused_when_it_is_opened(
    place: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(ConfigError, match="403"):
        place.open(proves=True, session=None)


def test_missing_credentials_are_said(place: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(ConfigError, match="no credentials"):
        place.open(proves=True, session=None)


TRIED_OUT = (
    "put if absent",
    "call after its deadline",
    "put if unchanged",
    "copy if absent",
    "copy if unchanged",
    "delete if unchanged",
    "upload if absent",
    "upload if unchanged",
)
"""What a service is asked to refuse when a bucket is opened, in order."""

TAKEN = Answer(200, body=b"<CopyObjectResult><ETag>a</ETag></CopyObjectResult>")


@pytest.mark.parametrize(("number", "what"), list(enumerate(TRIED_OUT)))
def test_a_service_that_breaks_what_is_relied_on_is_refused(
    number: int, what: str, place: Scene
) -> None:
    place.proxy.arm(TAKEN, _is_probe, spared=number)
    is_late = what == "call after its deadline"
    said = f"takes a signed {what}" if is_late else f"ignores the condition of a {what}"
    with pytest.raises(ConfigError, match=said) as caught:
        place.open(proves=True, uploads=place.folder)
    assert ("without a folder of uploads" in str(caught.value)) == what.startswith("upload")


def test_a_deadline_that_is_ignored_shows_by_the_condition_too(place: Scene) -> None:
    place.proxy.arm(Answer(412, "PreconditionFailed"), _is_probe, spared=1)
    with pytest.raises(ConfigError, match="after its deadline"):
        place.open(proves=True)


@pytest.mark.parametrize(
    ("answer", "error", "number"),
    [
        pytest.param(answer, error, number, id=f"{TRIED_OUT[number]}, {what}")
        for first, (what, answer, error) in enumerate(
            (
                ("it cannot", Answer(501, "NotImplemented"), ConfigError),
                ("it finds nothing", Answer(404, "NoSuchKey"), ConfigError),
                ("it is busy", Answer(503, "SlowDown"), UnavailableError),
                ("it says nothing", Fate.LOSE_ANSWER, UnavailableError),
            )
        )
        for number in range(first, len(TRIED_OUT), 4)
    ],
)
def test_a_service_that_does_not_say_what_it_keeps_is_not_relied_on(
    answer: Answer | Fate, error: type[CounterfoilError], number: int, place: Scene
) -> None:
    place.proxy.arm(answer, _is_probe, spared=number)
    with pytest.raises(error, match=TRIED_OUT[number]):
        place.open(proves=True, uploads=place.folder)


def test_a_bucket_without_uploads_is_not_asked_for_them(place: Scene) -> None:
    place.proxy.arm(TAKEN, _is_probe, spared=TRIED_OUT.index("upload if absent"))
    place.open(proves=True)


def test_trying_out_leaves_no_upload(place: Scene) -> None:
    place.open(proves=True, uploads=place.folder)
    assert place.uploads() == []


def test_a_bucket_of_another_instance_is_another_environment(place: Scene) -> None:
    adapter = place.open()
    before = adapter.observe(place.scope).state
    place.delete(".counterfoil/instance")
    with pytest.raises(UnavailableError):
        adapter.observe(place.scope)
    place.open()
    assert adapter.observe(place.scope).state.instance != before.instance


def test_a_damaged_record_stops_everything(place: Scene) -> None:
    adapter = place.open()
    do(place, adapter, "put", path="new.txt", content="ours")
    (name,) = _records(place, "keys")
    place.put(f".counterfoil/keys/{name}", "{}")
    with pytest.raises(FormatError):
        adapter.look_up(RUN, KEY, "s3.put")


def test_a_record_of_another_key_is_not_taken_for_this_one(place: Scene) -> None:
    adapter = place.open()
    do(place, adapter, "put", path="new.txt", content="ours")
    (name,) = _records(place, "keys")
    place.client.copy_object(
        Bucket=place.bucket,
        Key=f"{place.prefix}.counterfoil/keys/{digest(b'key-2')}",
        CopySource={"Bucket": place.bucket, "Key": f"{place.prefix}.counterfoil/keys/{name}"},
    )
    with pytest.raises(FormatError):
        adapter.look_up(RUN, Key("key-2"), "s3.put")


def test_no_secret_is_shown_recorded_or_said(place: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = place.open()
    sent = called(place, adapter, "put", path="new.txt", content="ours")
    receipt = adapter.execute(sent)
    told = [repr(adapter), repr(adapter._site), repr(adapter.kinds), encode(receipt).decode()]
    told += [_record(place, "keys"), _record(place, "runs")]
    signed = adapter._site.wire.sign("put_object", 5, Key="a")
    told += [repr(signed)]
    for fate in (Fate.LOSE_REQUEST, Answer(403, "AccessDenied"), Answer(500)):
        place.proxy.arm(fate)
        told += _words_of(place, adapter, Key(f"key-{len(told)}"))
    told += _words_of(place, adapter, Key("last"), stop=True)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        secret = place.server.environment[name]
        assert [text for text in told if secret in text] == []
    assert [text for text in told if "X-Amz-Signature" in text] == []


def test_without_boto3_the_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['boto3'] = None\n"
        "from counterfoil.adapters.s3 import open_s3\n"
        "from counterfoil.core.errors import ConfigError\n"
        "try:\n    open_s3('bucket')\n"
        "except ConfigError as error:\n    print(error)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "counterfoil[s3]" in answer.stdout


# ---------------------------------------------------------------- reads


def test_reads_show_what_is_there(place: Scene) -> None:
    place.put("bytes", b"\xff\x00")
    place.put("large", b"x" * 70_000)
    adapter = place.open()
    etag = place.put("page", "text", ContentType="text/html")
    got = do(place, adapter, "get", path="page").result
    assert (got["content"], got["etag"], got["content_type"]) == ("text", etag, "text/html")
    assert do(place, adapter, "get", path="page", encoding="bytes").result["content"] == b"text"
    assert do(place, adapter, "get", path="bytes").result["content"] == b"\xff\x00"
    assert do(place, adapter, "get", path="gone").result["etag"] == "absent"
    large = do(place, adapter, "get", path="large").result
    assert ("content" in large, large["size"]) == (False, 70_000)
    assert do(place, adapter, "head", path="page").result["size"] == 4


def test_a_listing_comes_in_pages(place: Scene) -> None:
    for number in range(5):
        place.put(f"d/{number}", "x")
    adapter = place.open()
    found: list[str] = []
    after = ""
    while True:
        more = {"after": after} if after else {}
        page = do(place, adapter, "list", path="d/", limit=2, **more).result
        found += [each["path"] for each in page["objects"]]
        after = page["next"]
        if not after:
            break
    assert found == [f"d/{number}" for number in range(5)]
    shown = do(place, adapter, "list", path=".").result["objects"]
    assert "d/0" in [each["path"] for each in shown]
    assert not any(each["path"].startswith(".counterfoil") for each in shown)


def test_records_of_an_adapter_further_down_are_not_ours_to_touch(place: Scene) -> None:
    """[T14] A planner above could forge what a run below believes."""
    below = place.open(prefix=f"{place.prefix}team/")
    above = place.open()
    before = above.observe(place.scope)
    assert below.take(RUN, FENCE) is None
    assert above.observe(place.scope) == before
    for path in ("team/.counterfoil/instance", "team/.COUNTERFOIL/keys/a"):
        for kind, arguments in (
            ("put", {"path": path, "content": ""}),
            ("copy", {"source": "old.txt", "path": path}),
            ("get", {"path": path}),
            ("delete", {"path": path}),
        ):
            with pytest.raises(ContractError, match="reserves"):
                do(place, above, kind, **arguments)


def test_a_listing_passes_records_by(place: Scene) -> None:
    place.open(prefix=f"{place.prefix}b/")
    for path in ("a", "b/c", "b/.counterfoil/~/x", "c"):
        place.put(path, "x")
    adapter = place.open()
    found: list[str] = []
    after = ""
    for _ in range(20):
        more = {"after": after} if after else {}
        page = do(place, adapter, "list", path=".", limit=1, **more).result
        found += [each["path"] for each in page["objects"]]
        after = page["next"]
        if not after:
            break
    assert found == ["a", "b/c", "c", "old.txt"]
    assert sorted(adapter.observe(place.scope).facts) == found


def test_a_scope_shows_only_what_it_covers(place: Scene) -> None:
    for path in ("a", "a.txt", "b/1", "b/2", "bb"):
        place.put(path, path)
    adapter = place.open()

    def seen(*paths: str) -> list[str]:
        return sorted(adapter.observe({"paths": paths}).facts)

    assert seen("a") == ["a"]
    assert seen("b/") == ["b/1", "b/2"]
    assert seen("a", "b/", "gone", "b/1") == ["a", "b/1", "b/2"]
    assert seen(".") == ["a", "a.txt", "b/1", "b/2", "bb", "old.txt"]
    assert seen() == []
    with pytest.raises(ContractError):
        seen("../a")


def test_an_unknown_kind_is_refused(place: Scene) -> None:
    adapter = place.open()
    sent = replace(called(place, adapter, "put", path="a", content=""), kind="s3.nothing")
    with pytest.raises(ContractError):
        adapter.execute(sent)


MODELS = Loader()
"""What is known of services, read once."""


def _with_models() -> BotocoreSession:
    core = BotocoreSession()
    core.register_component("data_loader", MODELS)
    return core


def _is_probe(request: Request) -> bool:
    """Whether a request must be refused when a bucket is opened."""
    return "/.counterfoil/probe?" in request.path and "X-Amz-Signature=" in request.path


def _records(place: Scene, folder: str) -> list[str]:
    prefix = f"{place.prefix}.counterfoil/{folder}/"
    answer = place.client.list_objects_v2(Bucket=place.bucket, Prefix=prefix)
    return [each["Key"].removeprefix(prefix) for each in answer["Contents"]]


def _record(place: Scene, folder: str) -> str:
    (name,) = _records(place, folder)
    key = f"{place.prefix}.counterfoil/{folder}/{name}"
    return place.client.get_object(Bucket=place.bucket, Key=key)["Body"].read().decode()


def _words_of(place: Scene, adapter: S3Adapter, key: Key, *, stop: bool = False) -> list[str]:
    """Return all that a failing call says, with what caused it."""
    sent = called(place, adapter, "put", path=f"{key}.txt", content="x", key=key)
    if stop:
        place.proxy.stop_listening()
    with pytest.raises(CounterfoilError) as raised:
        adapter.execute(sent)
    words: list[str] = []
    cause: BaseException | None = raised.value
    while cause is not None:
        words += [str(cause), repr(cause)]
        cause = cause.__cause__
    return words


def _task(place: Scene, *kinds: str) -> cf.Task:
    scope = {name: entries for name, entries in place.scope.items() if entries}
    policy = cf.Policy(permissions=kinds, scope={"s3": scope})
    return cf.Task(id="fill", policy=policy)
