"""One asyncio loop in a thread of its own. Tests are plain functions and talk to it through run() and call()."""
import asyncio
import threading


class LoopThread:
    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._main, name="hub-loop", daemon=True)
        self.thread.start()

    def _main(self):
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, coro, timeout=30):
        """Runs a coroutine in the loop and waits for its result. Never call it from inside the loop."""
        assert threading.current_thread() is not self.thread
        return asyncio.run_coroutine_threadsafe(coro, self.loop).result(timeout)

    def call(self, fn, *args):
        async def wrapped():
            return fn(*args)
        if threading.current_thread() is self.thread:
            return fn(*args)
        return self.run(wrapped())

    def spawn(self, coro):
        return self.loop.create_task(coro)


LOOP = LoopThread()
