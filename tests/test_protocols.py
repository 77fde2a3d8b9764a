"""What isinstance looks for in a protocol is the same in every Python."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src/attention_lab"


def data_members(source: str) -> list[str]:
    """Returns what the protocols that isinstance may check have beside methods and docstrings."""
    return [
        f"{protocol.name}: {ast.unparse(member)}"
        for protocol in ast.walk(ast.parse(source))
        if isinstance(protocol, ast.ClassDef)
        and "runtime_checkable" in {ast.unparse(decorator).rpartition(".")[2] for decorator in protocol.decorator_list}
        for member in protocol.body
        if not isinstance(member, ast.FunctionDef | ast.Expr)
    ]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_protocol_that_is_checked_has_methods_only(path):
    # From Python 3.12 on isinstance does not ask `__getattr__`, by which a network has its sub-modules and buffers.
    assert not data_members(path.read_text())


def test_a_data_member_would_be_seen():
    assert data_members("@runtime_checkable\nclass P(Protocol):\n    w_o: Linear\n    def f(self): ...") == [
        "P: w_o: Linear"
    ]
