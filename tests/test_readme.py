"""README: its table is the manifest's, its picture a real one, its commands exist."""

import re

import pytest

from mpcourse.check.manifest import load_course
from mpcourse.cli import _parser
from tests.conftest import ROOT, load_script

README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def readme():
    return load_script(ROOT / "lessons" / "readme.py")


def test_the_table_is_the_manifests(readme):
    assert readme.with_table(README, load_course(ROOT)) == README, "run `make lessons` and commit the result"


def test_a_readme_without_its_markers_is_refused(readme):
    with pytest.raises(ValueError, match="once"):
        readme.with_table("# nothing", load_course(ROOT))


def test_the_picture_shows_the_verdict_of_today(readme):
    """Its words, that is: colours and positions are rich's business."""

    def words(svg):
        return re.findall(r"[\w()=`.]+", re.sub(r"<style>.*?</style>|<[^>]+>|&#160;", " ", svg, flags=re.DOTALL))

    assert words(readme.PICTURE.read_text()) == words(readme.draw_verdict(load_course(ROOT)))


def test_links_point_to_files_that_exist():
    for target in re.findall(r"\]\(((?!http)[^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_command_that_it_names_exists():
    commands = next(a for a in _parser()._actions if hasattr(a, "choices") and a.choices).choices
    named = set(re.findall(r"mpcourse (doctor|list|check|hint|reset|solution|next|watch|lab|bench)", README))
    assert named and named <= set(commands)
    targets = set(re.findall(r"`make (\w+)", README)) | set(re.findall(r"^make (\w+)", README, re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text()
    assert targets and all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets), targets
