"""Headless Chromium, for the behaviour of pages in a browser."""

import contextlib
import shutil

import pytest


@contextlib.contextmanager
def phone(tmp_path):
    """Yields a Selenium driver with the width of a phone, or skips the test."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("Chromium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={tmp_path / 'profile'}", "--window-size=390,1400",
    ]:  # fmt: skip
        options.add_argument(argument)
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    with webdriver.Chrome(options=options, service=service) as browser:
        yield browser
