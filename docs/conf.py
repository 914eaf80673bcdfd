"""Configuration of Sphinx: `make docs` builds the site from the Markdown pages of this folder."""

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from generated_pages import GENERATED  # noqa: E402 (beside this file)

from qcqpbench import __version__  # noqa: E402

project = "qcqpbench"
release = version = __version__
html_title = "qcqpbench"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc"]
templates_path = ["_templates"]
exclude_patterns = ["_build"]
# The default of a repository: Markdown pages only, and rst for the stubs of the API that autosummary writes.
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

nitpicky = True

myst_enable_extensions = ["deflist"]
# Anchors as on code hosts, so that links such as page.md#some-heading work on both.
myst_heading_anchors = 4

autosummary_generate = True
# Docstrings name the types; annotations would be links to other projects, which need the network.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_context = {"default_mode": "auto"}
# The summaries of search results are fetched, which browsers refuse for pages opened from files.
html_show_search_summary = False
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"index": [], "install": [], "glossary": []}
html_theme_options = {
    "logo": {"text": "qcqpbench"},
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
copyright = "the qcqpbench developers, BSD-3-Clause"

# A page index.md lists the pages of its folder as `- [Title](page.md): …`; this makes the navigation of it.
_LISTED = re.compile(r"^- \[[^\]]+\]\(([\w./-]+)\.md\)", re.MULTILINE)
_MARK = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.MULTILINE)
# Pages outside docs/ that the site has under another name.
_OUTSIDE = {"README": "/index", "CONTRIBUTING": "/development/contributing", "CHANGELOG": "/development/changelog"}


def prepare_page(app: Sphinx, name: str, source: list[str]) -> None:
    """Insert generated text for marks, a table of contents of listed pages, and links to pages outside docs/."""
    text = _MARK.sub(lambda mark: GENERATED[mark[1]](), source[0])
    text = re.sub(r"\]\((?:\.\./)+(README|CONTRIBUTING|CHANGELOG)\.md", lambda link: f"]({_OUTSIDE[link[1]]}.md", text)
    if name.endswith("index"):
        pages = "\n".join(_LISTED.findall(text))
        text += f"\n\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"
    source[0] = text


def setup(app: Sphinx) -> None:
    """Connect the preparation of pages."""
    app.connect("source-read", prepare_page)
