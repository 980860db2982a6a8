"""How results are taken from an engine: one after the other, those of one request, or by a callback."""

from collections.abc import Iterator

from engine.core.request import GenerationOutput
from engine.delivery import Handler, Router


class ResultSource:
    """Gives out what a router keeps.

    Args:
        results: where the engine's outputs go.
    """

    def __init__(self, results: Router) -> None:
        self._results = results

    def get_result(self, request_id: str | None = None, timeout: float | None = None) -> GenerationOutput | None:
        """The next output, of one id or of any id nobody else waits for.

        Args:
            timeout: seconds to wait; None waits until one comes, or none can come any more.

        Returns:
            The output; None when none came in time, the engine is not running, or the id is neither live nor waiting.
        """
        if request_id is None:
            return self._results.next(timeout)
        return self._results.next_of(request_id, timeout)

    def __iter__(self) -> Iterator[GenerationOutput]:
        """Outputs as they come, until every accepted request has had its terminal one."""
        while (output := self._results.next(until_done=True)) is not None:
            yield output

    def request_id_iter(self, request_id: str) -> Iterator[GenerationOutput]:
        """Outputs of one id up to its terminal one; nobody else gets them meanwhile. Ends at once for an unknown id."""
        return self._results.all_of(request_id)

    def register_result_handler(self, request_id: str, callback: Handler) -> None:
        """Call ``callback(output)`` on the running event loop for each output of an id, until its terminal one.

        Raises:
            RuntimeError: called without a running event loop.
        """
        self._results.on_result(request_id, callback)
