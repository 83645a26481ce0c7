"""What a maintainer publishes with: metadata that agree, workflows that say what make knows."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import bayesrnn

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def read(path: Path) -> dict[str, Any]:
    """A YAML file; one that has a key twice is refused."""

    class Strict(yaml.SafeLoader):
        """Refuse what GitHub refuses."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [self.construct_object(key, deep) for key, _ in node.value]
            assert len(keys) == len(set(keys)), f"{path}: a key is there twice: {keys}"
            return super().construct_mapping(node, deep)

    found = yaml.load(path.read_text(), Strict)
    assert isinstance(found, dict)
    return found


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_are_whole(path: Path) -> None:
    found = read(path)
    assert {"name", "jobs", "permissions"} <= set(found)
    assert True in found, "`on`, which YAML reads as true"
    for name, job in found["jobs"].items():
        assert "uses" in job or {"runs-on", "steps"} <= set(job), name
        needs = job.get("needs", [])
        assert set([needs] if isinstance(needs, str) else needs) <= set(found["jobs"])
        for step in job.get("steps", []):
            assert ("uses" in step) != ("run" in step), step
            assert "@" in step.get("uses", "@"), step


def test_workflows_call_what_make_has() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = [
        word
        for path in WORKFLOWS
        for line in re.findall(r"run: make (.*)", path.read_text())
        for word in line.split()
        if "=" not in word
    ]
    assert called
    assert set(called) <= targets


def test_ci_builds_tests_site_and_wheels() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert set(re.findall(r"run: make PYTHON=python ([\w-]+)", text)) == {
        "test",
        "test-loops",
        "docs",
        "release-check",
    }


def test_only_the_job_that_publishes_may_do_so() -> None:
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    assert [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})] == [
        "publish"
    ]
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_issue_templates_ask_with_a_name_for_each_field(path: Path) -> None:
    found = read(path)
    if path.name == "config.yml":
        return
    assert {"name", "description", "body"} <= set(found)
    fields = [field for field in found["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)


def test_the_citation_agrees_with_the_package() -> None:
    found = read(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(found)
    assert found["version"] == bayesrnn.__version__
    assert found["license"] == project()["project"]["license"]


def test_what_ci_tests_is_what_the_package_claims() -> None:
    claimed = {
        line.rpartition(" ")[2]
        for line in project()["project"]["classifiers"]
        if re.search(r":: 3\.\d+$", line)
    }
    assert claimed == {"3.10", "3.11", "3.12", "3.13"}
    tested = read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["test"]["strategy"]
    assert {one["python"] for one in tested["matrix"]["include"]} <= claimed


def test_the_source_distribution_can_build_the_wheel() -> None:
    included = project()["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert {"src", "hatch_build.py", "README.md", "LICENSE"} <= set(included)
    assert all((ROOT / name).exists() for name in included)


def test_the_documents_of_a_release_are_there() -> None:
    security = (ROOT / "SECURITY.md").read_text()
    for word in ("cache", "configuration", "checkpoints", "compact files", "data", "report"):
        assert word in security


def test_nothing_is_unpickled() -> None:
    pickle = re.compile(r"(?<!safetensors\.)torch\.load\(|import pickle|allow_pickle=True")
    assert [p for p in (ROOT / "src").rglob("*.py") if pickle.search(p.read_text())] == []
