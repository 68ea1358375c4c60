"""A tab of the browser, and what a person does with it: look, point, click, type."""

from __future__ import annotations

import time
from base64 import b64decode
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from .chrome import PATIENCE, Chrome, Message

KEYS = {  # key: code and number, where it is no letter
    "Tab": ("Tab", 9), "Enter": ("Enter", 13), "Escape": ("Escape", 27), " ": ("Space", 32), "End": ("End", 35),
    "Home": ("Home", 36), "ArrowLeft": ("ArrowLeft", 37), "ArrowUp": ("ArrowUp", 38),
    "ArrowRight": ("ArrowRight", 39), "ArrowDown": ("ArrowDown", 40),
}  # fmt: skip
SHIFT = 8


class Page:
    """A tab: what a person does with it, and what it says and asks for meanwhile."""

    def __init__(self, chrome: Chrome, session: str | None = None):
        self.chrome = chrome
        self.session = session or self.attached()
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.tell(f"{domain}.enable")
        self.errors, self.requests = list[str](), list[str]()

    def attached(self) -> str:
        target = self.chrome.tell("Target.createTarget", url="about:blank")["targetId"]
        return self.chrome.tell("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def tell(self, method: str, **values: Any) -> Message:
        return self.chrome.tell(method, self.session, **values)

    # what is seen

    def size(self, width: int = 1440, height: int = 900, density: float = 1) -> None:
        sizes = {"width": width, "height": height, "deviceScaleFactor": density, "mobile": False}
        self.tell("Emulation.setDeviceMetricsOverride", **sizes)

    def prefer(self, **features: str) -> None:
        """prefer(color_scheme="dark", reduced_motion="reduce")"""
        told = [{"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()]
        self.tell("Emulation.setEmulatedMedia", media="", features=told)

    def open(self, address: str | Path, until: str = "window.headway?.ready === true") -> None:
        """Goes to a file or an address, and waits until the page is drawn."""
        self.tell("Page.navigate", url="about:blank")
        self.wait("location.href === 'about:blank'")
        self.collect()
        self.errors, self.requests = [], []
        url = address.resolve().as_uri() if isinstance(address, Path) else address
        self.tell("Page.navigate", url=url)
        self.wait(f"location.href !== 'about:blank' && ({until})")

    def framed(self, file: Path) -> Page:
        """Opens a file with a sandboxed page in it, and gives that page, which the browser keeps apart."""
        follow = {"waitForDebuggerOnStart": False, "flatten": True}
        self.tell("Target.setAutoAttach", autoAttach=True, **follow)
        self.open(file, until="document.readyState === 'complete'")
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self.evaluate("1")
            for event in self.chrome.came:
                told = event.get("params", {})
                if told.get("targetInfo", {}).get("type") == "iframe":
                    return Page(self.chrome, told["sessionId"])
            time.sleep(0.02)
        raise TimeoutError("no page was attached")

    def evaluate(self, script: str) -> Any:
        """The value of an expression, awaited if it is a promise."""
        asked = {"expression": script, "awaitPromise": True, "returnByValue": True}
        answer = self.tell("Runtime.evaluate", **asked)
        if "exceptionDetails" in answer:
            told = answer["exceptionDetails"]
            raise RuntimeError(told.get("exception", {}).get("description") or told["text"])
        return answer["result"].get("value")

    def wait(self, script: str, seconds: float = PATIENCE) -> None:
        """Until an expression is true."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with suppress(RuntimeError):  # a page on its way to another has nowhere to evaluate
                if self.evaluate(script):
                    return
            time.sleep(0.02)
        self.collect()
        raise TimeoutError(f"never true: {script}; the page said: {self.errors}")

    def settle(self) -> None:
        self.evaluate("window.headway.settled()")

    def every_view(self) -> None:
        """Shows each view of the chosen site, one after the other."""
        self.evaluate("""(async () => {
          for (const view of headway.views()) {
            headway.change({ view });
            await headway.settled();
          }
        })()""")

    def text(self, testid: str) -> str:
        return str(self.evaluate(f"{found(testid)}.innerText"))

    def shot(self, path: Path) -> None:
        path.write_bytes(b64decode(self.tell("Page.captureScreenshot", format="png")["data"]))

    # what is done

    def hover(self, x: float, y: float) -> None:
        self.tell("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def press_at(self, x: float, y: float) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.tell("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def click(self, testid: str) -> None:
        """A click with the pointer in the middle of an element."""
        script = f"(n => (n.scrollIntoView({{block: 'nearest'}}), n.getBoundingClientRect().toJSON()))({found(testid)})"
        box = self.evaluate(script)
        self.press_at(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    def key(self, key: str, *, shift: bool = False) -> None:
        code, number = KEYS.get(key, (key, ord(key[0].upper())))
        told = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": SHIFT if shift else 0}
        text = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
        self.tell("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **told, **text)
        self.tell("Input.dispatchKeyEvent", type="keyUp", **told)
        if self.evaluate("Boolean(window.headway)"):
            self.settle()

    # what the page says and asks for

    def collect(self) -> None:
        """Sorts what the browser has reported into errors and requests."""
        self.evaluate("1")
        for event in [one for one in self.chrome.came if one.get("sessionId") == self.session]:
            told = event.get("params", {})
            match event.get("method"):
                case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                    self.errors.append(" ".join(str(each.get("value", each)) for each in told["args"]))
                case "Runtime.exceptionThrown":
                    details = told["exceptionDetails"]
                    self.errors.append(details.get("exception", {}).get("description") or details["text"])
                case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                    self.errors.append(told["entry"]["text"])
                case "Network.requestWillBeSent":
                    self.requests.append(told["request"]["url"])
                case _:
                    pass
        self.chrome.came = deque(one for one in self.chrome.came if one.get("sessionId") != self.session)

    def asked_for(self) -> list[str]:
        """What was requested besides the page itself and what it holds."""
        self.collect()
        return [url for url in self.requests[1:] if not url.startswith(("data:", "blob:", "about:"))]


def found(testid: str) -> str:
    return f"document.querySelector('[data-testid=\"{testid}\"]')"
