"""Every page of the built site in a real browser, in a window's width and in a phone's: nothing sticks out. `make test-pages`.

A screenshot of each is left in `build/pages`, for people to look at.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: make test-pages")
ROOT = Path(__file__).parents[2]
SITE, PICTURES = ROOT / "build" / "site", ROOT / "build" / "pages"
if not (SITE / "index.html").exists():
    pytest.skip("the site is not built: make test-pages", allow_module_level=True)
if not (shutil.which("chromium") and shutil.which("chromedriver")):
    pytest.skip("needs chromium and chromedriver", allow_module_level=True)

PAGES = sorted(p.relative_to(SITE).as_posix() for p in SITE.rglob("*.html") if p.name != "404.html")
WIDTHS = {"window": 1280, "phone": 390}
_TOO_WIDE = """
const page = document.documentElement.clientWidth;
return [...document.querySelectorAll('article *')].filter(e => {
  if (e.closest('.md-typeset__scrollwrap, .highlight, mjx-container, .headerlink')) return false;
  const box = e.getBoundingClientRect();
  return box.width && (box.right > page + 1 || box.left < -1);
}).map(e => e.outerHTML.slice(0, 80));
"""
_HIDDEN_CODE = """
return [...document.querySelectorAll('article .highlight code')].filter(e => e.scrollWidth > e.clientWidth + 1)
  .map(e => e.textContent.split('\\n').sort((a, b) => b.length - a.length)[0]);
"""


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-quic", "disable-background-networking", "disable-sync", "no-first-run"):
        options.add_argument(f"--{argument}")
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_sticks_out(browser, page, width):
    # A headless window is never narrower than 500 pixels, but what it emulates is.
    size = {"width": WIDTHS[width], "height": 900, "deviceScaleFactor": 1, "mobile": width == "phone"}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get((SITE / page).as_uri())
    PICTURES.mkdir(parents=True, exist_ok=True)
    browser.save_screenshot(str(PICTURES / f"{page.removesuffix('.html').replace('/', '_')}-{width}.png"))
    assert browser.execute_script("return document.documentElement.scrollWidth") <= WIDTHS[width]
    assert browser.execute_script(_TOO_WIDE) == []
    if width == "window" and not page.startswith("reference/"):
        assert browser.execute_script(_HIDDEN_CODE) == []
