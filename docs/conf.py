"""How Sphinx makes the site: ``make docs``."""

import os
import pathlib
import re
import sys

DOCS = pathlib.Path(__file__).parent
ROOT = DOCS.parent
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
nb_execution_mode = "off"  # ``make notebooks`` runs them

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
    """Leads links to files that are no pages to the repository.

    Args:
      text: a page in Markdown, whose links are right in a checkout.
      page: where it is.

    Returns:
      The page. Links to other pages are left alone.
    """

    def link(match: re.Match) -> str:
        words, target = match.groups()
        path, _, anchor = target.partition("#")
        there = pathlib.Path(os.path.normpath(page.parent / path))
        if there.is_relative_to(DOCS) or not there.exists():
            return match[0]  # a page, or for Sphinx to complain about
        kind = "tree" if there.is_dir() else "blob"
        address = f"{REPOSITORY}/{kind}/main/{there.relative_to(ROOT).as_posix()}"
        return f"[{words}]({address}{'#' * bool(anchor)}{anchor})"

    return LINK.sub(link, text)


def two_pictures(text: str) -> str:
    """Pictures that follow the switch of the theme, not the browser's setting."""
    return PICTURE.sub(r"![\2](\3){.only-light} ![\2](\1){.only-dark}", text)


def on_source_read(app, name, content):
    """Changes what is right on GitHub into what is right on the site."""
    page = pathlib.Path(app.env.doc2path(name))
    if page.suffix == ".md":
        content[0] = two_pictures(out_of_docs(content[0], page))


def setup(app):
    """Called by Sphinx."""
    app.connect("source-read", on_source_read)
