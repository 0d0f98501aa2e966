# SPDX-License-Identifier: Apache-2.0
"""One interface to Chromium and Firefox: Chromium through its WebDriver, Firefox through Marionette, its built-in protocol
(Debian has no geckodriver). Both run headless and without a network."""
import base64
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time

CHROMIUM, DRIVER, FIREFOX = shutil.which("chromium"), shutil.which("chromedriver"), shutil.which("firefox-esr")
try:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
except ImportError:
    webdriver = None


def chromium_is_there():
    return bool(CHROMIUM and DRIVER and webdriver)


class Chromium:
    name = "chromium"

    def __init__(self, downloads=None, unlimited=False):
        options = Options()
        options.binary_location = CHROMIUM
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1280,1000",
                     "--disable-dev-shm-usage", "--disable-background-networking",
                     "--host-resolver-rules=MAP * ~NOTFOUND"]
        if unlimited:  # unlimited frame rate, not the screen's
            arguments += ["--disable-frame-rate-limit", "--disable-gpu-vsync"]
        for argument in arguments:
            options.add_argument(argument)
        if downloads:
            options.add_experimental_option("prefs", {"download.default_directory": downloads})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service(DRIVER), options=options)
        self.driver.set_script_timeout(120)

    def open(self, url):
        self.driver.get(url)

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def later(self, text, *arguments):
        """A script that calls its last argument with the result."""
        return self.driver.execute_async_script(text, *arguments)

    def size(self, width, height):
        self.driver.set_window_size(width, height)

    def colours(self, scheme):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                    {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def picture(self):
        return base64.b64decode(self.driver.get_screenshot_as_base64())

    def complaints(self):
        return self.driver.get_log("browser")

    def quit(self):
        self.driver.quit()


class Firefox:
    name = "firefox"

    def __init__(self, downloads=None):
        self.profile = tempfile.mkdtemp(prefix="qkv-firefox-")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with open(os.path.join(self.profile, "user.js"), "w", encoding="ascii") as file:
            file.write(f'user_pref("marionette.port", {port});\nuser_pref("app.update.enabled", false);\n'
                       'user_pref("network.proxy.type", 1);\nuser_pref("network.proxy.http", "127.0.0.1");\n'
                       'user_pref("network.proxy.http_port", 9);\n')
        self.process = subprocess.Popen(
            [FIREFOX, "--headless", "--marionette", "--no-remote", "--profile", self.profile],
            env={**os.environ, "HOME": self.profile}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.connect(port)
        except Exception:
            self.quit()
            raise

    def connect(self, port):
        for _ in range(600):
            try:
                self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
                break
            except OSError:
                time.sleep(0.1)
        self.number = 0
        self.receive()  # its greeting
        self.command("WebDriver:NewSession", timeouts={"script": 120000})
        self.size(1280, 1000)

    def receive(self):
        digits = b""
        while (byte := self.socket.recv(1)) != b":":
            if not byte:
                raise ConnectionError("firefox ended")
            digits += byte
        message = b""
        while len(message) < int(digits):
            message += self.socket.recv(int(digits) - len(message))
        return json.loads(message)

    def command(self, command, **parameters):
        self.number += 1
        message = json.dumps([0, self.number, command, parameters]).encode()
        self.socket.sendall(str(len(message)).encode() + b":" + message)
        _, _, error, result = self.receive()
        if error:
            raise RuntimeError(f"{command}: {error['error']}: {error['message']}")
        return result

    def open(self, url):
        self.command("WebDriver:Navigate", url=url)

    def script(self, text, *arguments):
        return self.command("WebDriver:ExecuteScript", script=text, args=arguments)["value"]

    def later(self, text, *arguments):
        return self.command("WebDriver:ExecuteAsyncScript", script=text, args=arguments)["value"]

    def size(self, width, height):
        self.command("WebDriver:SetWindowRect", width=width, height=height)

    def colours(self, scheme):
        self.script("document.querySelector(`[data-theme-choice=${arguments[0]}]`).click()", scheme)

    def picture(self):
        return base64.b64decode(self.command("WebDriver:TakeScreenshot", full=False)["value"])

    def complaints(self):
        return []  # not available through Marionette

    def quit(self):
        self.process.terminate()
        self.process.wait(timeout=60)
        shutil.rmtree(self.profile, ignore_errors=True)
