# cython: language_level=3, boundscheck=False, wraparound=False
"""The strings of a model file's array, found by number and by text without an object for each."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy, memset

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef uint32_t EMPTY = 0xFFFFFFFF


cdef inline uint64_t mixed(const uint8_t *text, int64_t size, uint64_t seed) noexcept:
    """A number that depends on every bit of text and seed."""
    cdef uint64_t state = seed ^ <uint64_t>size, word
    while size >= 8:
        memcpy(&word, text, 8)
        state = (state ^ word) * <uint64_t>0x9E3779B97F4A7C15
        state ^= state >> 29
        text += 8
        size -= 8
    word = 0
    while size > 0:
        size -= 1
        word = word << 8 | text[size]
    state = (state ^ word) * <uint64_t>0xBF58476D1CE4E5B9
    return state ^ (state >> 32)


cdef class StringTable:
    """See string_table.StringTable, which says what the methods do."""

    cdef bytes span
    cdef const uint8_t *data
    cdef int64_t n
    cdef int64_t *starts  # [n + 1]; a string ends 8 bytes, the next one's length, before the next start
    cdef uint32_t *slots  # [mask + 1] numbers of strings, EMPTY where none is
    cdef uint64_t mask, seed

    def __cinit__(self, bytes span, int64_t n, bint keeps_first, uint64_t seed):
        """span: n strings, each behind its length in 8 bytes. seed: random, or a file could choose
        strings that all collide. Raises ValueError when the lengths and the span disagree."""
        cdef int64_t i
        cdef uint64_t n_slots = 16
        if not 0 <= n < EMPTY // 4:
            raise ValueError(f"{n} strings")
        while n_slots < 2 * <uint64_t>n:
            n_slots *= 2
        self.span, self.data, self.n = span, span, n
        self.mask, self.seed = n_slots - 1, seed
        self.starts = <int64_t *>malloc((n + 1) * sizeof(int64_t))
        self.slots = <uint32_t *>malloc(n_slots * sizeof(uint32_t))
        if self.starts is NULL or self.slots is NULL:
            raise MemoryError
        self.measure(len(span))
        memset(self.slots, 0xFF, n_slots * sizeof(uint32_t))
        for i in range(n):
            self.enter(i, keeps_first)

    def __dealloc__(self):
        free(self.starts)
        free(self.slots)

    def __len__(self):
        return self.n

    def __getitem__(self, int64_t index):
        if not 0 <= index < self.n:
            raise IndexError(index)
        return self.span[self.starts[index] : self.starts[index] + self.length(index)]

    def get(self, str text):
        cdef Py_ssize_t size = 0
        cdef const uint8_t *sought
        cdef uint32_t found
        try:
            sought = <const uint8_t *>PyUnicode_AsUTF8AndSize(text, &size)
        except UnicodeEncodeError:
            return None
        found = self.slots[self.slot_of(sought, size)]
        return None if found == EMPTY else found

    def containing(self, bytes mark, int64_t start):
        cdef int64_t i, size = len(mark)
        cdef const uint8_t *sought = mark
        found = []
        if size == 0:
            raise ValueError("no mark")
        for i in range(self.n):
            if self.holds(i, sought, size, start):
                found.append(i)
        return found

    cdef inline int64_t length(self, int64_t index) noexcept:
        return self.starts[index + 1] - 8 - self.starts[index]

    cdef int measure(self, int64_t n_bytes) except -1:
        cdef int64_t i, position = 0
        cdef uint64_t length
        for i in range(self.n):
            if n_bytes - position < 8:
                raise ValueError("the strings end before their number")
            memcpy(&length, self.data + position, 8)  # little-endian, as every machine that builds this
            position += 8
            if length > <uint64_t>(n_bytes - position):
                raise ValueError("a string is longer than what is left")
            self.starts[i] = position
            position += <int64_t>length
        self.starts[self.n] = position + 8
        return 0

    cdef inline void enter(self, int64_t index, bint keeps_first) noexcept:
        cdef uint64_t slot
        if self.length(index) == 0:
            return
        slot = self.slot_of(self.data + self.starts[index], self.length(index))
        if self.slots[slot] == EMPTY or not keeps_first:
            self.slots[slot] = <uint32_t>index

    cdef inline uint64_t slot_of(self, const uint8_t *text, int64_t size) noexcept:
        """Where the text is, or the free slot where it belongs: at most half of all are taken."""
        cdef uint64_t slot = mixed(text, size, self.seed) & self.mask
        cdef uint32_t there
        while True:
            there = self.slots[slot]
            if there == EMPTY:
                return slot
            if self.length(there) == size and memcmp(self.data + self.starts[there], text, size) == 0:
                return slot
            slot = (slot + 1) & self.mask

    cdef bint holds(self, int64_t index, const uint8_t *mark, int64_t size, int64_t start) noexcept:
        cdef const uint8_t *at = self.data + self.starts[index] + start
        cdef const uint8_t *last = self.data + self.starts[index] + self.length(index) - size
        while at <= last:
            at = <const uint8_t *>memchr(at, mark[0], last - at + 1)
            if at is NULL:
                return False
            if memcmp(at, mark, size) == 0:
                return True
            at += 1
        return False
