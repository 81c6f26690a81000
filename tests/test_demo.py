"""examples/demo.py in a browser."""

import contextlib
import os
import re
import shutil
import subprocess
import sys

import pytest
from processes import ROOT

pytest.importorskip("gradio", reason="gradio is not installed (extra [demo])")
# A part of the first example's result on each page.
SHOWN = ["Bob", "Brazil", "PER", "door", "good"]


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


@pytest.mark.once("torch")
def test_pages_show_their_first_example_and_answer(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "examples/demo.py"], env=environment, cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    with process, phone(tmp_path) as browser:
        from selenium.webdriver.common.by import By
        from selenium.webdriver.support.ui import WebDriverWait

        try:
            found = None
            while found is None:
                line = process.stdout.readline()
                assert line, "the page did not start"
                found = re.search(r"http://127\.0\.0\.1:\d+", line)
            browser.get(found.group())
            browser.set_window_size(1300, 1000)  # On a phone, a menu has some of the tabs.
            wait = WebDriverWait(browser, 60)

            def panel():
                (shown,) = [
                    x for x in browser.find_elements(By.XPATH, "//*[@role='tabpanel']")
                    if x.is_displayed()
                ]  # fmt: skip
                return shown

            for number, text in enumerate(SHOWN, 1):
                button = f"//button[@role='tab'][starts-with(normalize-space(), '{number}.')]"
                wait.until(lambda b: b.find_elements(By.XPATH, button))[0].click()  # noqa: B023
                wait.until(lambda b: text in panel().text)  # noqa: B023
            box = panel().find_element(By.TAG_NAME, "textarea")
            box.clear()
            box.send_keys("The food was awful and cold.")
            panel().find_element(By.XPATH, ".//button[normalize-space()='Submit']").click()
            wait.until(lambda b: panel().text.index("bad") < panel().text.index("good"))
            browser.set_window_size(400, 1000)
            wait.until(lambda b: panel().find_element(By.TAG_NAME, "textarea").is_displayed())
            assert browser.execute_script(
                "return document.documentElement.scrollWidth <= window.innerWidth"
            )
        finally:
            process.kill()
