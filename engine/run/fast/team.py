"""The threads the kernels compute with."""

import ctypes

import torch


class Team:
    """As many threads as PyTorch is set to use, the calling one included; kept until ``close``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        library.assemble.restype = ctypes.c_void_p
        self._library = library
        self._size = 0
        self._handle: int | None = None

    def handle(self) -> ctypes.c_void_p:
        """What the kernels take for a team, assembled anew when another number of threads is wanted.

        Raises:
            RuntimeError: the system gives no more threads.
        """
        wanted = torch.get_num_threads()
        if self._handle is None or wanted != self._size:
            self.close()
            self._handle, self._size = self._library.assemble(ctypes.c_int32(wanted)), wanted
            if self._handle is None:
                raise RuntimeError(f"the system gives no {wanted} threads to compute with; try --threads 1")
        return ctypes.c_void_p(self._handle)

    def close(self) -> None:
        """Ends the threads, which must not be computing."""
        if self._handle is not None:
            self._library.dismiss(ctypes.c_void_p(self._handle))
            self._handle = None
