"""How Sphinx makes the site: ``make docs``."""

import base64
import json
import os
import pathlib
import re
import sys

DOCS = pathlib.Path(__file__).parent
ROOT = DOCS.parent
NOTEBOOKS = ROOT / "notebooks"
GALLERY = DOCS / "gallery"  # made of the notebooks, to be executed and shown
CHECKS = ROOT / "tests" / "notebook_checks.py"  # of what they say
sys.path.insert(0, str(ROOT))  # this checkout, whatever is installed

import ctagd_optax  # noqa: E402

REPOSITORY = "https://github.com/ctagd-optax/ctagd-optax"

project = "ctagd-optax"
author = "The ctagd-optax authors"
copyright = f"2026, {author}"  # noqa: A001, Sphinx calls it so
release = version = ctagd_optax.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
myst_enable_extensions = ["attrs_inline", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "auto"  # git has no outputs
nb_execution_raise_on_error = True
nb_execution_timeout = 120  # seconds, for a cell
nb_merge_streams = True
nb_output_stderr = "remove"

autosummary_generate = True
autosummary_imported_members = True
autodoc_typehints = "none"  # the signature and the text say it
napoleon_attr_annotations = False
napoleon_use_ivar = True

html_theme = "sphinx_book_theme"
html_title = "ctagd-optax"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "repository_url": REPOSITORY,
    "use_repository_button": True,
    "use_issues_button": True,
    "use_download_button": False,
    "navbar_persistent": [],  # the sidebar has the search
    "show_toc_level": 2,
}

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")
PICTURE = re.compile(
    r'<picture>\s*<source [^>]*srcset="([^"]+)">\s*'
    r'<img alt="([^"]*)" src="([^"]+)">\s*</picture>'
)


def out_of_docs(text: str, page: pathlib.Path) -> str:
    """Leads links to where the site has them, and others to the repository.

    Args:
      text: a page in Markdown, whose links are right in a checkout.
      page: where it is.

    Returns:
      The page. On the site, notebooks are in the gallery.
    """
    here = on_the_site(page).parent

    def link(match: re.Match) -> str:
        words, target = match.groups()
        path, _, anchor = target.partition("#")
        there = pathlib.Path(os.path.normpath(page.parent / path))
        if not there.exists():
            return match[0]  # for Sphinx to complain about
        kind = "tree" if there.is_dir() else "blob"
        address = f"{REPOSITORY}/{kind}/main/{there.relative_to(ROOT).as_posix()}"
        if on_the_site(there).is_relative_to(DOCS):
            address = pathlib.Path(os.path.relpath(on_the_site(there), here)).as_posix()
        return f"[{words}]({address}{'#' * bool(anchor)}{anchor})"

    return LINK.sub(link, text)


def on_the_site(path: pathlib.Path) -> pathlib.Path:
    """Where the site has a file of the checkout."""
    shown = path.parent == NOTEBOOKS and path.suffix == ".ipynb"
    return GALLERY / path.name if shown else path


def for_the_gallery(path: pathlib.Path) -> str:
    """A notebook with the site's links, and a hidden last cell that checks its text."""
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = out_of_docs("".join(cell["source"]), path)
    check = (
        "import sys\n\nsys.path.insert(0, '../..')\n"
        "from tests import notebook_checks\n\n"
        f"notebook_checks.check('{path.stem}', globals())"
    )
    hidden = {"id": "check", "metadata": {"tags": ["remove-cell"]}, "source": check}
    code = {"cell_type": "code", "execution_count": None, "outputs": []}
    notebook["cells"].append(hidden | code)
    return json.dumps(notebook)


def with_pictures(text: str) -> str:
    """The gallery's page, with a picture below each title that leads to a notebook."""
    title = re.compile(r"^(## \[.*\]\((?:.*/)?(\w+)\.ipynb\))$", flags=re.MULTILINE)
    picture = r'<a href="gallery/\2.html"><img alt="" src="images/gallery/\2.png"></a>'
    return title.sub(rf"\1\n\n{picture}", text)


def first_picture(notebook: pathlib.Path) -> bytes:
    """The first picture among the outputs of a notebook."""
    cells = json.loads(notebook.read_text())["cells"]
    outputs = (o.get("data", {}) for c in cells for o in c.get("outputs", []))
    return base64.b64decode(next(o["image/png"] for o in outputs if "image/png" in o))


def two_pictures(text: str) -> str:
    """Pictures that follow the switch of the theme, not the browser's setting."""
    return PICTURE.sub(r"![\2](\3){.only-light} ![\2](\1){.only-dark}", text)


def on_builder_inited(app):
    """Puts the notebooks where Sphinx looks for pages; new ones only."""
    GALLERY.mkdir(exist_ok=True)
    made = {path.name: for_the_gallery(path) for path in NOTEBOOKS.glob("*.ipynb")}
    for path in GALLERY.iterdir():
        if path.name not in made:
            path.unlink()
        elif path.read_text() == made[path.name]:
            del made[path.name]
    for name, text in made.items():
        (GALLERY / name).write_text(text)


def on_source_read(app, name, content):
    """Changes what is right on GitHub into what is right on the site."""
    page = pathlib.Path(app.env.doc2path(name))
    if page.suffix == ".md":
        content[0] = with_pictures(two_pictures(out_of_docs(content[0], page)))
    if page.parent == GALLERY:  # is executed anew if the library changes, or its check
        for path in (*ROOT.glob("ctagd_optax/**/*.py"), CHECKS):
            app.env.note_dependency(str(path), docname=name)


def on_build_finished(app, error):
    """Puts the first pictures of the notebooks where the gallery looks for them."""
    if error is None and app.builder.format == "html":
        pictures = pathlib.Path(app.outdir) / "images" / "gallery"
        pictures.mkdir(parents=True, exist_ok=True)
        executed = pathlib.Path(app.outdir).parent / "jupyter_execute" / "gallery"
        for path in GALLERY.glob("*.ipynb"):
            picture = first_picture(executed / path.name)
            (pictures / f"{path.stem}.png").write_bytes(picture)


def setup(app):
    """Called by Sphinx."""
    app.connect("builder-inited", on_builder_inited)
    app.connect("source-read", on_source_read)
    app.connect("build-finished", on_build_finished)
