"""CITATION.cff: what the format's schema (1.2.0) asks for, and nothing that contradicts the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import levelport

ROOT = Path(__file__).resolve().parents[3]
yaml = pytest.importorskip("yaml", reason="the file is YAML: pip install pyyaml")

TOP = {
    "abstract", "authors", "cff-version", "commit", "contact", "date-released", "doi", "identifiers", "keywords",
    "license", "license-url", "message", "preferred-citation", "references", "repository", "repository-artifact",
    "repository-code", "title", "type", "url", "version",
}  # fmt: skip
REFERENCE_TYPES = {"article", "book", "conference-paper", "proceedings", "report", "software", "thesis", "unpublished"}


def test_the_schema() -> None:
    content = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(content) <= TOP
    assert content["cff-version"] == "1.2.0"
    assert content["type"] in ("software", "dataset")
    assert content["license"] == "Apache-2.0"
    assert content["version"] == levelport.__version__
    for author in content["authors"]:
        assert set(author) <= {"name", "alias", "email", "website", "family-names", "given-names", "orcid"}
    paper = content["preferred-citation"]
    assert {"type", "title", "authors"} <= set(paper)
    assert paper["type"] in REFERENCE_TYPES
    assert isinstance(paper["year"], int)
    assert all({"family-names", "given-names"} <= set(author) for author in paper["authors"])
    assert isinstance(paper["conference"], dict)
    assert "name" in paper["conference"]


def test_the_changelog_begins_with_this_version() -> None:
    entries = re.findall(r"^## (\S+?),? ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert entries[0] == levelport.__version__
