"""What is a stub and what only looks like one: classes that others derive from, hooks, dummies, remarks."""

import os
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from midfill_infill.syntax.classes import find_bases
from midfill_infill.syntax.holes import find_stubs
from midfill_infill.text.document import Document


def stubs(source: str, language: str = "python") -> list[str | None]:
    return [hole.name for hole in find_stubs(Document(textwrap.dedent(source).encode(), language))]


STUBS = {
    "a remark that says later": "class A(B):\n    def g(x): return 1\n    def f(x):\n        pass  # later\n",
    "a remark that says not yet": "class _A:\n    def f(x): pass  # not yet\n    def g(x): return 1\n",
    "three dots in a class that derives": "class A(B):\n    def g(x): return 1\n    def f(x): ...\n",
    "three dots where another is chosen": "if a:\n    def f(x): ...\nelse:\n    f = g\n",
    "a message that says later, of a type": "@show.register(A)\ndef _(x):\n    raise NotImplementedError('later')\n",
    "two that a private class leaves empty": "class _A:\n def f(x): return 1\n def g(x): pass\n",
    "code that only starts like a built name": "class A:\n def do_f(x): pass\n def g(x): return 'do_it'\n",
    "three dots": "def f(x):\n    ...\n",
    "not implemented": "def f(x):\n    raise NotImplementedError\n",
    "called": "def f(x):\n    raise NotImplementedError()\n",
    "with a message": "def f(x):\n    raise NotImplementedError('not implemented yet')\n",
    "a message that says TODO": "class Base:\n    def f(x):\n        raise NotImplementedError('TODO')\n",
    "pass": "def f(x):\n    pass\n",
    "a docstring alone": 'def f(x):\n    """The sum."""\n',
    "TODO before": "class BaseAdapter:\n    def __enter__(x):\n        # TODO: write\n        pass\n",
    "TODO behind": "class NullFile:\n    def close(x):\n        pass  # TODO\n",
    "three dots in a base class": "class BaseAdapter:\n    def f(x):\n        ...\n",
    "a comment that says what is wanted": "def f(x):\n    # the sum of all x\n    pass\n",
    "a base class without others": "class Shape:\n    def f(x):\n        raise NotImplementedError\n",
    "a docstring that speaks of subclasses": 'def f(x):\n    """Subclasses."""\n    raise NotImplementedError\n',
    "within a function": "def g():\n    def f(x):\n        pass\n    return f\n",
    "a class that derives from another": "class A(B):\n    def f(x):\n        pass\n",
    "an async method that says later": "class A:\n    async def f(x):\n        raise NotImplementedError('later')\n",
    "a message below a remark": "def f(x):\n    # some day\n    raise NotImplementedError('Not yet.')\n",
    "three dots that no test runs": "def f(x):  # pragma: no cover\n    ...\n",
    "one of the abstract that is not": "class A(ABC):\n @abstractmethod\n def g(x): ...\n"
    " def f(x): raise NotImplementedError\n",
    "a scaffold": "class A:\n    def f(x): raise NotImplementedError\n",
    "a docstring alone in a class whose decorator writes no methods": "@dataclasses.dataclass(slots=True)\nclass A:\n"
    '    def f(x):\n        """The sum."""\n',
    "code in a decorated class": '@registered\nclass A:\n    def f(x):\n        """The sum."""\n        ...\n',
    "TODO in a function that dispatches": "@functools.singledispatch\ndef f(x):\n    ...  # TODO\n",
    "an implementation behind its overloads": "class A:\n @overload\n def f(x: int): ...\n def f(x): ...\n"
    " def g(x): return 1\n",
    "a message that says not yet, overridden": "class A:\n def f(x): raise NotImplementedError('not implemented yet')\n"
    "class B(A):\n def f(x): return 1\n",
    "one of many tools": "@tool\ndef f(x): pass\n" + "".join(f"@tool\ndef f{n}(x): return {n}\n" for n in range(5)),
    "TODO in a group of commands": "@app.group()\ndef f(x):\n    pass  # TODO\n",
}
NONE = {
    "overridden": "class A:\n  def f(x):\n    raise NotImplementedError\n\nclass B(A):\n  def f(x):\n    return 1\n",
    "overridden by a grandchild": "class A:\n def f(x): pass\nclass B(A): x = 1\nclass C(B):\n def f(x): return 1\n",
    "abstract": "class A:\n    @abstractmethod\n    def f(x):\n        ...\n",
    "overload": "@overload\ndef f(x: int) -> int: ...\n",
    "protocol": "class A(Protocol):\n    def f(x): ...\n",
    "named a base": "class BaseTransport:\n    def f(x):\n        raise NotImplementedError\n",
    "a listener": "class PoolListener:\n    def opened(x):\n        raise NotImplementedError\n",
    "a mixin": "class LogMixin:\n    def f(x):\n        pass\n",
    "a message to those who call": "def f(x):\n    raise NotImplementedError('Cookie headers go elsewhere')\n",
    "a docstring for those who derive": 'class A:\n def f(x):\n  """Override it."""\n  raise NotImplementedError\n',
    "a docstring of a hook": 'class A:\n    def f(x):\n        """Called when it ends."""\n',
    "a remark": "class A:\n    def f(x):\n        raise NotImplementedError()  # pragma: no cover\n",
    "a special method": "class A:\n    def __init__(x):\n        pass\n",
    "a hook": 'class A:\n    def on_enter(x):\n        """Enter."""\n',
    "nothing to do": "class NullFile:\n    def write(x):\n        pass\n",
    "called noop": "def noop(x):\n    pass\n",
    "a dummy of a test": "def test_g():\n    def f(x):\n        pass\n    use(f)\n",
    "a decorated dummy": "def g():\n    @wrapped\n    def f(x):\n        pass\n    use(f)\n",
    "an exception": "class FError(Exception):\n    pass\n",
    "code": "def f(x):\n    return 1\n",
    "three dots with a pragma": "class A:\n    def f(x):\n        ...  # pragma: no cover\n",
    "a signature for types": "class A:\n  if TYPE_CHECKING:\n\n    def __init__(x, y: int) -> None: ...\n",
    "a group of commands": '@app.group("x")\ndef f(x):\n    """Help."""\n',
    "a callback of commands": '@app.callback()\ndef f(x):\n    """Help."""\n    pass\n',
    "a message under a remark": "def f(x):\n    # v1 has none\n    raise NotImplementedError(\n        'v1 only')\n",
    "a message with its class": "class A:\n def f(x): raise NotImplementedError(f'{type(self)} is not implemented')\n",
    "an abstract class": "class A(ABC):\n    def f(x): raise NotImplementedError\n",
    "an override that refuses": "class A(B):\n    @override\n    def f(x): raise NotImplementedError\n",
    "what a class with code inherits": "class A(B):\n    def g(x): return 1\n    def f(x): pass\n",
    "a method of an interface": "class A(Interface):\n    def f(x): ...\n",
    "what a class refuses": "class A(B):\n"
    + "".join(f"    def g{number}(x): raise NotImplementedError\n" for number in range(3)),
    "what a class refuses that a base class has": "class A(JobBase):\n    def f(x): raise NotImplementedError\n",
    "a remark that others need not": "class A:\n    def f(x):\n        # may not implement it\n"
    "        raise NotImplementedError('none for ' + self.name)\n",
    "a hook by its docstring": 'class A:\n    def f(x):\n        """Called each time a thing is added."""\n',
    "a hook by its name": 'class A:\n    def before_remove(x):\n        """Removal."""\n',
    "a migration without a way back": "def downgrade():\n    pass\n",
    "what a concrete class has": 'class A:\n  def f(x):\n    """Implemented by B."""\n    raise NotImplementedError\n',
    "a class whose docstring says what it is": 'class A:\n    """Interface of a queue."""\n    def f(x): ...\n',
    "a remark that says that nothing is left": "def f(x):\n    # No action needed.\n    pass\n",
    "called noop, with dots": "def no_op_writer(x): ...\n",
    "FIXME about a type": "class A(B):\n    @override\n    def f(x):  # type: ignore[override] # FIXME\n"
    "        raise NotImplementedError\n",
    "a mock that refuses": "class MockTransport(B):\n    def f(x): raise NotImplementedError\n",
    "a default that does nothing": "async def _default_logging_callback(x):\n    pass\n",
    "a remark that says why": "class A:\n    def f(x):\n        # Not needed: the server does it.\n        pass\n",
    "what the decorator of a class writes": '@in_c\nclass A:\n    @deprecated\n    def f(x):\n        """The sum."""\n',
    "what dispatches": '@functools.singledispatch\ndef f(x):\n    """Doc."""\n    raise NotImplementedError\n',
    "what a database has": "@udf.scalar.builtin\ndef f(x: bytes) -> int: ...\n",
    "an error that is expected": "@mark.xfail(raises=NotImplementedError)\ndef f(x):\n    raise NotImplementedError\n",
    "many under a decorator that writes them": "".join(
        f"@glyph(A{number})\ndef f{number}(x): pass\n" for number in range(5)
    ),
    "overloads alone": "class A:\n @overload\n def f(x: int): ...\n def f(x): ...\n",
    "signatures for a type checker": "class A(type):\n    # in signature only to satisfy mypy\n    def f(x): ...\n",
    "a function that stands for its signature": "def g():\n def f(x): ...\n f.__signature__ = s\n return f\n",
    "a class that says it does nothing": 'class A(B):\n    """No-op status."""\n    def f(x):\n        pass\n',
    "one of three that a private class leaves empty": "class _A:\n def f(x): pass\n def g(x): pass\n def h(x): pass\n",
    "a method that is called by a built name": "class A:\n def do_f(x): pass\n def g(x, n): getattr(x, f'do_{n}')()\n",
    "what stands in for an import": "try:\n    from a import f\nexcept ImportError:\n    def f(x): pass\n",
    "what stands in for another class": "if a:\n    A = B\nelse:\n    class A:\n        def f(x): pass\n",
    "a name that a decorator gives code": "def f(x):\n    pass\n\n@overload(f)\ndef g(x):\n    return x\n",
    "a body that a type checker lets be empty": "def f(x):  # type: ignore[empty-body]\n    ...\n",
    "a signature for types of one version": "if sys.version_info > (3, 11) and TYPE_CHECKING:\n    def f(x): ...\n",
    "an override that does nothing": "class A(B):\n    @override\n    def f(x): pass\n",
    "a type that is refused": "@show.register(A)\ndef _(x):\n    raise NotImplementedError\n",
    "a docstring of an interface's method": 'class IA(Interface):\n    def f():\n        """The sum."""\n',
    "a message that names another way": "def f(x):\n    raise NotImplementedError('not implemented, use g instead')\n",
    "a message to authors of subclasses": "class A:\n def f(x): raise NotImplementedError('Implement in a subclass')\n",
    "a message, overridden": "class A:\n def f(x): raise NotImplementedError('not implemented')\n"
    "class B(A):\n def f(x): return 1\n",
    "a docstring that says why": 'def f(x):\n    """A no-op for streams of others."""\n',
}


def test_the_file_says_what_a_class_in_it_is_for() -> None:
    doc = b'def f(x):\n    """Doc."""\n'
    assert not find_stubs(Document(doc, "python", Path("tests/tools.py"))), "a dummy"
    assert find_stubs(Document(doc, "python", Path("src/tools.py")))
    assert find_stubs(Document(b"def f(x):\n    ...\n", "python", Path("tests/tools.py")))
    signature = b"class Out:\n    def __call__(x, y: str) -> None: ...\n"
    assert not find_stubs(Document(signature, "python", Path("src/_typing.py")))
    assert find_stubs(Document(signature, "python", Path("src/out.py")))
    dummy = b"def test_a():\n    def test(): ...\n    use(test)\n"
    assert not find_stubs(Document(dummy, "python", Path("tests/test_a.py")))


@pytest.mark.parametrize(
    ("source", "num_stubs"),
    [
        ("def a(x): ...\ndef b(x): ...\ndef c(x): ...\n", 0),  # for the types alone
        ("def a(x): ...\ndef b(x): ...\n", 2),
        ("def test_a(): ...\ndef test_b(): ...\ndef test_c(): ...\n", 3),
        ("def test_a():\n    def f(): ...\n    use(f)\n", 0),
        ("class FakeClock:\n    def f(x): raise NotImplementedError\n", 0),
        ("class TestClock:\n    def f(x): raise NotImplementedError\n", 1),
        ("class FakeClock:\n    def f(x): raise NotImplementedError('later')\n", 1),
    ],
)
def test_dummies_of_a_test_file_are_none(source: str, num_stubs: int) -> None:
    assert len(find_stubs(Document(source.encode(), "python", Path("a/type_tests/tools.py")))) == num_stubs


@pytest.mark.parametrize("case", STUBS)
def test_a_body_to_be_written_is_a_stub(case: str) -> None:
    assert len(stubs(STUBS[case])) == 1


@pytest.mark.parametrize("case", NONE)
def test_a_body_that_is_finished_is_no_stub(case: str) -> None:
    assert stubs(NONE[case]) == []


BASE = b"""class Reader:
    def read(self): raise NotImplementedError
    def skip(self): pass
    def close_all(self): ...
    def seek(self): raise NotImplementedError('not implemented')
    def tell(self): raise NotImplementedError('not yet implemented')
"""


@pytest.mark.parametrize("derived", ["pkg/near.py", "pkg/inner/far.py", "pkg/__init__.py"])
def test_a_package_says_which_classes_others_derive_from(tmp_path: Path, derived: str) -> None:
    (tmp_path / "pkg" / "inner").mkdir(parents=True)
    for name in ("pkg/__init__.py", "pkg/inner/__init__.py"):
        (tmp_path / name).touch()
    path = tmp_path / "pkg" / "readers.py"
    path.write_bytes(BASE)
    names = [hole.name for hole in find_stubs(Document.read(path))]
    assert names == [f"Reader.{name}" for name in ("read", "skip", "close_all", "seek", "tell")]
    (tmp_path / "outside.py").write_text("class A(Reader):\n    def read(self): return 1\n")
    (tmp_path / "pkg" / "link.py").symlink_to(tmp_path / "outside.py")
    (tmp_path / "pkg" / "other.py").write_text("class A(LineReader):\n    x = Reader\n")
    assert len(find_stubs(Document.from_bytes(BASE + b"\n", path))) == 5, "not in the package"
    (tmp_path / derived).write_text(
        "class A(\n    readers.Reader[int]\n):\n    def seek(self): return 1\n\ndef tell(): 1\n"
    )
    names = [hole.name for hole in find_stubs(Document.from_bytes(BASE + b"\n\n", path))]
    assert names == ["Reader.close_all", "Reader.tell"], "words and three dots are believed"


def test_a_package_says_what_a_method_replaces(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text("class Reader:\n    def read(self): return 1\n    def skip(self): pass\n")
    path = tmp_path / "readers.py"
    path.write_text("class LineReader(Reader):\n    def read(self): raise NotImplementedError\n"
                    "    def skip(self): raise NotImplementedError\n")  # fmt: skip
    assert [hole.name for hole in find_stubs(Document.read(path))] == ["LineReader.skip"]


def test_other_languages_have_base_classes_too() -> None:
    throws = 'throw new Error("not implemented");'
    base = f"class A {{\n  f() {{ {throws} }}\n  g() {{ {throws} }}\n}}\n"
    assert stubs(base, "typescript") == ["A.f", "A.g"]
    assert stubs(base + "class B extends A {\n  f() { return 1; }\n}\n", "typescript") == ["A.g"]
    java = f"class A {{\n  void f() {{ {throws.replace('Error', 'UnsupportedOperationException')} }}\n}}\n"
    assert stubs(java, "java") == ["A.f"]
    assert stubs(java + "class B extends A implements C {\n  void f() { g(); }\n}\n", "java") == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("class A(B):\n" + "    def f(x): raise NotImplementedError\n" * 1200, []),
        ("class A:\n    def f(x): ...\n" + "\n" * 50_000, ["A.f"]),
    ],
)
def test_a_file_of_many_lines_takes_no_longer_for_each(source: str, names: list[str]) -> None:
    start_s = time.process_time()
    assert stubs(source) == names
    assert time.process_time() - start_s < 1.5


def test_a_package_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "base.py").write_text("class B:\n    def f(x): return 1\n")
    source = "".join(f"class A{index}(B):\n    def f(x): raise NotImplementedError\n" for index in range(3))
    listed: list[str] = []
    walk = os.walk

    def count(folder: str) -> Iterator[tuple[str, list[str], list[str]]]:
        listed.append(folder)
        return walk(folder)

    monkeypatch.setattr(os, "walk", count)
    assert find_stubs(Document(source.encode(), "python", tmp_path / "a.py")) == ()
    assert len(listed) == 1


@pytest.mark.parametrize("class_line", ["class C{}:\n    pass\n", "class C{} extends\n"])
def test_many_classes_without_bases_are_read_at_once(class_line: str) -> None:
    source = "".join(class_line.format(number) for number in range(3000))
    start_s = time.process_time()
    assert find_bases(Document(source.encode(), "python"), "C7") == frozenset()
    assert time.process_time() - start_s < 0.5
