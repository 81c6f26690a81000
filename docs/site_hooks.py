"""Hooks of `mkdocs build`: the site's pages are files of the repository, at the same paths.

The site also contains files outside of `docs/`, such as the model cards. All files keep their paths
in the repository, so that relative links between them work in both places. Only addresses differ.
"""

import ast
import base64
import html
import json
import pathlib
import posixpath
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).parent.parent
FILES = (
    "*.md",
    "LICENSE",
    "benchmarks/*.csv",
    "benchmarks/*.md",
    "benchmarks/*.png",
    "configs/**/*.cfg",
    "configs/*.md",
    "docs/**/*.css",
    "docs/**/*.csv",
    "docs/**/*.md",
    "docs/**/*.png",
    "examples/*.md",
    "examples/*.py",
    "examples/*.sh",
    "examples/data/*",
)
# Addresses that differ from the path.
ADDRESSES = (
    (re.compile(r"^docs/README\.md$"), "guides.md"),
    (re.compile(r"^docs/"), ""),
    (re.compile(r"^saved_models/"), "presets/"),
    (re.compile(r"^configs/"), "runs/"),
    (re.compile(r"^CHANGELOG\.md$"), "changelog.md"),
    (re.compile(r"^CONTRIBUTING\.md$"), "contributing.md"),
)
OUTPUT = re.compile(r'(<div class="output">)([\w+/=]+)(</div>)')
# Names and types before the description of a parameter, and of a value that is returned.
PARAMETER = re.compile(
    r'(<li class="doc-section-item field-body">\s*<b><code[^>]*>[^<]*</code></b>)[^–]*–'
)
RETURNS = re.compile(
    r'((?:Returns|Yields):</span></p>\s*<ul>\s*<li class="doc-section-item field-body">)[^–]*–'
)


def on_config(config):
    """Adds the pages in the tables of `docs/README.md` to the navigation."""
    _, *parts = re.split(r"^## (.*)$", (ROOT / "docs/README.md").read_text(), flags=re.MULTILINE)
    tables = dict(zip(parts[::2], parts[1::2]))
    for section in config["nav"]:
        for heading, pages in section.items():
            links = re.findall(r"^\| \[(.*?)\]\((.*?)\)", tables.get(heading, ""), re.MULTILINE)
            for title, link in links:
                path = posixpath.normpath(f"docs/{link}")
                pages.append({title: path.replace(".ipynb", ".md")})  # On the site it is a page.
    return config


def on_files(files, config):
    """Replaces the files of `docs_dir` by those of the repository, and notebooks by pages."""
    docs = pathlib.Path(config["docs_dir"])
    for file in list(files):
        if docs in pathlib.Path(file.abs_src_path or "").parents:
            files.remove(file)
    paths = {path for pattern in FILES for path in ROOT.glob(pattern)}
    for card in ROOT.glob("saved_models/*/README.md"):  # The presets that come with the project.
        paths |= {card, *card.parent.glob("history.csv")}
    for name in sorted(path.relative_to(ROOT).as_posix() for path in paths):
        files.append(repository_file(name, config["site_dir"]))
    for path in ROOT.glob("docs/*.ipynb"):
        page = File.generated(
            config, f"docs/{path.stem}.md", content=notebook_markdown(json.loads(path.read_text()))
        )
        page.dest_uri = f"{path.stem}/index.html"
        files.append(page)
    return files


def notebook_markdown(notebook):
    """Returns a notebook with its outputs as Markdown."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts += [f"```python\n{source}\n```", *map(output_markdown, cell["outputs"])]
    return "\n\n".join(parts)


def output_markdown(output):
    data = output.get("data", {})
    if "image/png" in data:
        image = "".join(data["image/png"]).replace("\n", "")
        shown = f'<img alt="Plot" src="data:image/png;base64,{image}">'
    elif "text/html" in data:
        shown = "".join(data["text/html"])
    else:
        text = html.escape("".join(output.get("text", data.get("text/plain", ""))))
        shown = f"<pre><code>{text}</code></pre>"
    # Encoded, so that Markdown leaves it unchanged. `on_page_content` decodes it.
    return f'<div class="output">{base64.b64encode(shown.encode()).decode()}</div>'


def repository_file(name, site):
    """Returns the file of a path in the repository, with its address on the site."""
    address = name
    for pattern, replacement in ADDRESSES:
        address = pattern.sub(replacement, address, count=1)
    address = File(address, str(ROOT), site, use_directory_urls=True).dest_uri
    return File(name, str(ROOT), site, use_directory_urls=True, dest_uri=address)


def on_page_markdown(markdown, page, config, files):
    """Changes what GitHub's Markdown and Python-Markdown read differently."""
    if page.file.src_uri.startswith("docs/reference/"):
        return re.sub(r"^\{(model|preprocessor)s\}$", task_classes, markdown, flags=re.MULTILINE)
    markdown = re.sub(r"(\]\([^)\s]+)\.ipynb\)", r"\1.md)", markdown)  # On the site it is a page.
    # Lists in lists are indented by two or three spaces on GitHub, and by four here.
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [re.sub(r"^ {2,3}(?=\S)", "    ", x, flags=re.MULTILINE) for x in parts[::2]]
    return "".join(parts)


def task_classes(match):
    """Returns a reference entry for each class that `api.py` imports from such modules of tasks."""
    imports = ast.parse((ROOT / "keras_spanbert/api.py").read_text()).body
    return "\n\n".join(
        f"::: keras_spanbert.{name.name}"
        for node in imports
        if isinstance(node, ast.ImportFrom)
        and re.fullmatch(rf"keras_spanbert\.tasks\.\w+\.{match[1]}", node.module)
        for name in node.names
    )


def on_page_content(content, page, config, files):
    """Keeps short code in one line, and leaves out types, which the docstrings state."""
    content = re.sub(r"<code>([^\s<]{2,28})</code>", r'<code class="short">\1</code>', content)
    content = RETURNS.sub(r"\1", PARAMETER.sub(r"\1 –", content))
    content = content.replace("\ua789", ":")  # See docs/site_docstrings.py.
    return OUTPUT.sub(lambda m: m[1] + base64.b64decode(m[2]).decode() + m[3], content)
