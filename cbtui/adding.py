"""Requests on their way to the engine: tokenised on a worker, remembered for undo and duplicate, spread over time."""

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from cbtui.launch import RequestSpec
from cbtui.loader import Post
from cbtui.prompts import encode
from cbtui.stories import Story
from cbtui.submit import submit
from cbtui.text import unnamed
from cbtui.work import Worker, words_of
from engine.core.errors import RequestError

KEPT_SPECS = 4000
"""Requests remembered as they were written; older ones can still be duplicated from their token ids."""


class Adder:
    """Adds requests to a manager without making the caller wait.

    Args:
        worker: runs tokenising and adding, in order.
        post: hands results back to the event loop.
        say: tells a person why something was not added.
        refused: told of each request that was refused, as (its name, the reason).
    """

    def __init__(
        self, worker: Worker, post: Post, say: Callable[[str, str], None], refused: Callable[[str, str], None]
    ) -> None:
        self._worker, self._post, self._say, self._refused = worker, post, say, refused
        self._refusals = 0
        self._specs: dict[str, RequestSpec] = {}
        self._cancelled: list[RequestSpec] = []
        self._due: deque[tuple[float, RequestSpec]] = deque()

    def add(self, manager: Any, tokenizer: Any, spec: RequestSpec) -> None:
        """Tokenises and adds a request and its copies."""
        self._worker.submit(lambda: self._add(manager, tokenizer, spec, self._post))

    def fill(self, manager: Any, tokenizer: Any, specs: Iterable[RequestSpec], post: Post) -> None:
        """Adds requests to an engine that was not started yet, on the caller's thread, so that one step finds them all.

        Those its queue has no room for before it runs are added as soon as it does.

        Args:
            post: hands results on, in place of the usual way.
        """
        room = manager.config.max_queue_size.value or math.inf
        for spec in specs:
            room -= spec.copies
            if room >= 0:
                self._add(manager, tokenizer, spec, post)
            else:
                post(partial(self.add, manager, tokenizer, spec))

    def _add(self, manager: Any, tokenizer: Any, spec: RequestSpec, post: Post) -> None:
        """Runs on a worker."""
        try:
            ids = list(spec.prompt_ids) or encode(tokenizer, spec.text, spec.chat)
            for copy in range(spec.copies):
                self._submit(manager, spec, ids, copy, post)
        except RequestError as error:
            post(partial(self._refuse, spec, str(error)))
        except Exception as error:
            post(partial(self._say, f"not added: {words_of(error)}", "error"))

    def _submit(self, manager: Any, spec: RequestSpec, ids: list[int], copy: int, post: Post) -> None:
        """Runs on a worker."""
        request_id = submit(manager.add_request, spec, ids, copy)
        seed = None if spec.seed is None else spec.seed + copy
        kept = replace(spec, prompt_ids=tuple(ids), copies=1, seed=seed, request_id=None)
        post(partial(self._remember, request_id, kept))

    def _refuse(self, spec: RequestSpec, reason: str) -> None:
        """It stays in sight with its reason, and can be copied, changed and added again."""
        self._refusals += 1
        name = f"refused-{self._refusals}"
        self._remember(name, replace(spec, copies=1, request_id=None))
        self._refused(name, reason)
        self._say(f"not added: {unnamed(reason)}", "error")

    def _remember(self, request_id: str, spec: RequestSpec) -> None:
        self._specs[request_id] = spec
        while len(self._specs) > KEPT_SPECS:
            del self._specs[next(iter(self._specs))]

    def spec_of(self, story: Story) -> RequestSpec:
        """The request as it was written, or made again from what the engine knows of it."""
        if story.request_id in self._specs:
            return self._specs[story.request_id]
        info = story.info
        if info is None:
            return RequestSpec()
        return RequestSpec(prompt_ids=info.prompt_ids, chat=False, max_new_tokens=info.max_new_tokens)

    def note_cancelled(self, story: Story) -> None:
        """The request was cancelled by hand; ``take_cancelled`` gives it back."""
        self._cancelled.append(self.spec_of(story))

    @property
    def can_undo(self) -> bool:
        return bool(self._cancelled)

    def take_cancelled(self) -> RequestSpec | None:
        """The request cancelled last, once."""
        return self._cancelled.pop() if self._cancelled else None

    def spread(self, requests: Iterable[tuple[float, RequestSpec]], now: float) -> None:
        """Requests that come later: (seconds from now, request)."""
        self._due = deque(sorted([*self._due, *((now + after, spec) for after, spec in requests)], key=lambda d: d[0]))

    def take_due(self, now: float) -> list[RequestSpec]:
        """Requests whose time has come."""
        ready = []
        while self._due and self._due[0][0] <= now:
            ready.append(self._due.popleft()[1])
        return ready

    def drop_due(self) -> None:
        """Nothing more arrives."""
        self._due.clear()

    def close(self) -> None:
        self._worker.close()
