"""The page: its data, and a real browser that plays with it."""

import json
import re
import shutil
import time

import numpy as np
import pytest

from ctagd_optax import testbed
from ctagd_optax.testbed._explore import page_data

CONFIG = testbed.RunConfig(max_steps=70, patience=30)
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")


@pytest.fixture(scope="module")
def results():
    return [
        testbed.run(name, learning_rate=rate, runs=2, config=CONFIG)
        for name, rate in (("ct-agd", 0.01), ("sgd", 0.01), ("robust", 0.003))
    ]


def test_the_page_is_whole_and_loads_nothing(results):
    page = testbed.explore_page(results)
    assert "/*DATA*/" not in page
    assert "/*PLOTLY*/" not in page
    own = page.replace(re.search(r"<script>(/\*\*.*?)</script>", page, re.S)[1], "")
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", own)
    assert len(own) < 500_000


def test_the_data_are_the_results(results):
    data = json.loads(json.dumps(page_data(results, run=1), allow_nan=False))
    first = data["optimizers"][0]
    steps = int(results[0].steps[1])
    np.testing.assert_allclose(
        first["path"], results[0].paths[1, : steps + 1], atol=1e-4
    )
    np.testing.assert_allclose(
        first["loss"], results[0].test_loss[1, : steps + 1], atol=1e-4
    )
    closed = first["internals"]["closed"]
    assert closed == list(range(20, steps + 1, 20))
    for t in closed:
        np.testing.assert_allclose(
            first["internals"]["correction"][t],
            results[0].internals.correction[1, t],
            atol=1e-4,
        )
    assert "internals" not in data["optimizers"][1]
    robust = data["optimizers"][2]
    steps = int(results[2].steps[1])
    multiplier = results[2].internals.multiplier[1, : steps + 1]
    np.testing.assert_allclose(robust["internals"]["multiplier"], multiplier, atol=1e-4)
    assert robust["internals"]["closed"] == list(range(20, steps + 1, 20))
    np.testing.assert_allclose(
        data["landscape"]["test"]["center"],
        results[0].landscapes.test.center[1],
        atol=1e-6,
    )


def test_a_name_cannot_break_out_of_the_script(results):
    bad = testbed.run("sgd", runs=1, config=CONFIG, name="</script><b>")
    page = testbed.explore_page([bad])
    assert "</script><b>" not in page


def test_bad_run_is_refused(results):
    with pytest.raises(ValueError, match="run must be in"):
        testbed.explore_page(results, run=2)
    with pytest.raises(ValueError, match="empty"):
        testbed.explore_page([])


@pytest.fixture(scope="module")
def browser(results, tmp_path_factory):
    if not BROWSER or not DRIVER:
        pytest.skip("no browser is installed (Debian: chromium and chromium-driver)")
    from selenium import webdriver

    folder = tmp_path_factory.mktemp("page")
    page = folder / "explore.html"
    page.write_text(testbed.explore_page(results), encoding="utf-8")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1360,980",
        f"--user-data-dir={folder / 'profile'}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(
        options=options, service=webdriver.ChromeService(executable_path=DRIVER)
    )
    driver.get(page.as_uri())
    yield driver
    driver.quit()


def until(condition, seconds=30):
    """Waits for a condition of the page, however slow the machine is."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the page did not get there"
        time.sleep(0.05)


def markers(browser):
    """Where the optimizers' dots are on the screen, the first one's last."""
    return browser.execute_script(
        """
        return [...document.querySelectorAll("#map .scatterlayer .trace")]
          .map(t => t.querySelectorAll(".points path"))
          .filter(p => p.length === 1)
          .map(p => { const r = p[0].getBoundingClientRect();
                      return [r.x + r.width / 2, r.y + r.height / 2]; })
        """
    )


def visible_paths(browser):
    return browser.execute_script(
        'return document.querySelectorAll("#map .scatterlayer .js-line").length'
    )


def test_the_page_draws_without_errors(browser):
    until(lambda: visible_paths(browser) >= 1)
    assert browser.execute_script(
        'return document.querySelectorAll("#map .contourlayer path").length'
    )
    for chart in ("loss", "factor", "curvature"):
        assert browser.execute_script(
            f'return document.querySelectorAll("#{chart} .js-line").length'
        )
    loaded = browser.execute_script(
        'return performance.getEntriesByType("resource").map(r => r.name)'
    )
    assert [name for name in loaded if not name.startswith("data:")] == []


def test_the_slider_moves_the_markers(browser, results):
    from selenium.webdriver.common.keys import Keys

    browser.execute_script("testbed.go(1)")  # at step 0 paths are single dots too
    before = markers(browser)
    slider = browser.find_element("id", "slider")
    for _ in range(14):
        slider.send_keys(Keys.ARROW_RIGHT)
    until(lambda: browser.find_element("id", "step").text.startswith("step 15 of"))
    after = markers(browser)
    # The optimizers and the star at the start, which stays.
    assert len(before) == len(after) == len(results) + 1
    moved = np.linalg.norm(np.subtract(after, before), axis=1)
    assert (moved[:-1] > 5).all()
    assert moved[-1] < 0.5
    drawn = browser.execute_script(
        """
        return document.getElementById("map").data
          .filter(t => t.mode === "markers" && t.name).map(t => [t.x[0], t.y[0]])
        """
    )
    for point, result in zip(drawn, reversed(results), strict=True):
        np.testing.assert_allclose(point, result.paths[0, 15], atol=1e-3)


def test_a_toggle_hides_a_path_and_brings_it_back(browser):
    browser.execute_script("testbed.go(15)")
    paths = visible_paths(browser)
    dots = len(markers(browser))
    box = browser.find_element("css selector", 'input[name="SGD"]')
    box.click()
    until(lambda: visible_paths(browser) == paths - 1)
    assert len(markers(browser)) == dots - 1
    box.click()
    until(lambda: visible_paths(browser) == paths)
    assert len(markers(browser)) == dots


def test_play_walks_and_pause_stops(browser):
    browser.execute_script("testbed.go(0)")
    play = browser.find_element("id", "play")
    height = play.size["height"]
    play.click()
    assert "Pause" in play.text
    assert play.size["height"] == height  # on one line, too
    until(lambda: browser.execute_script("return testbed.state.step") >= 3)
    play.click()
    assert browser.execute_script("return testbed.state.timer") is None
    step = browser.execute_script("return testbed.state.step")
    time.sleep(0.3)  # four steps at the page's speed, were it still playing
    assert browser.execute_script("return testbed.state.step") == step


def test_the_correction_is_drawn_at_the_end_of_an_epoch(browser, results):
    def arrows(step):
        return browser.execute_script(
            f"""
            testbed.go({step});
            return document.getElementById("map").layout.annotations
              .filter(a => a.showarrow).length
            """
        )

    assert arrows(19) == 0
    assert arrows(20) == 1
    text = browser.find_element("id", "facts").text
    length = np.linalg.norm(results[0].internals.correction[0, 20])
    shown = float(re.search(r"([\d.e+]+) long, at step 20", text)[1])
    assert shown == pytest.approx(float(length), rel=1e-2)


def test_the_robust_method_shows_its_multiplier(browser, results):
    def choose(name):
        browser.execute_script(
            """
            const select = document.getElementById("chosen");
            select.value = arguments[0];
            select.dispatchEvent(new Event("change"));
            testbed.go(15);
            """,
            name,
        )

    curvature = browser.find_element("id", "curvature")
    title = browser.find_element("id", "factor-title")
    choose("Robust (SGD)")
    drawn = browser.execute_script(
        'return document.getElementById("factor").data.map(t => [t.name, [...t.y]])'
    )
    multiplier = results[2].internals.multiplier[0]
    [(name, values)] = drawn
    assert name == "Robust (SGD)"
    np.testing.assert_allclose(
        values, multiplier[1 : int(results[2].steps[0]) + 1], atol=1e-4
    )
    assert "multiplier" in title.text
    assert not curvature.is_displayed()
    shown = re.search(r"m = ([\d.]+)\.", browser.find_element("id", "facts").text)[1]
    assert float(shown) == pytest.approx(float(multiplier[15]), rel=1e-2)
    choose("CT-AGD")
    assert "γ" in title.text
    assert curvature.is_displayed()


def test_the_surfaces_are_the_landscapes(browser, results):
    """The page computes the landscape itself: the same numbers as in Python."""
    landscape = results[0].landscape(0)
    for choice, loss in (
        ("test", landscape.test_average),
        ("train", landscape.train_average),
        ("now", lambda theta: landscape.train_loss(theta, 6)),
    ):
        x, y, z = browser.execute_script(
            """
            const select = document.getElementById("surface");
            select.value = arguments[0];
            select.dispatchEvent(new Event("change"));
            testbed.go(7);
            const c = document.getElementById("map").data[0];
            return [c.x, c.y, c.z.map(r => r.slice())];
            """,
            choice,
        )
        for i, j in ((5, 9), (40, 40), (70, 22)):
            theta = np.asarray([x[j], y[i]], landscape.start.dtype)
            np.testing.assert_allclose(z[i][j], loss(theta), rtol=1e-3, atol=1e-3)


def test_nothing_was_logged(browser):
    errors = [e for e in browser.get_log("browser") if e["level"] != "INFO"]
    assert errors == []
