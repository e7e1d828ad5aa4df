# cython: language_level=3, boundscheck=False, wraparound=False
"""The thin layer over csrc/: buffers in, buffers out, no GIL while C computes."""

import os

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free

cdef extern from "kernels.h":
    enum:
        MF_TILE_ROWS
        MF_CHUNK_POSITIONS

cdef extern from "minfer_native.h" nogil:
    ctypedef struct mf_operation:
        pass
    ctypedef struct mf_value:
        pass
    ctypedef struct mf_cache_group:
        pass
    ctypedef struct mf_program:
        pass
    ctypedef struct mf_cache:
        pass
    ctypedef struct mf_sequence:
        int32_t first_row, n_rows, length_before
    ctypedef struct mf_batch:
        int32_t n_tokens, n_logits, n_sequences
        const int32_t *ids
        const int32_t *rope_pos
        const int32_t *cache_pos
        const int32_t *logit_rows
        const float *rows
        const mf_sequence *sequences
        const int32_t **block_tables
        const int64_t *table_lengths
    ctypedef struct mf_query:
        int32_t top
        const int32_t *listed_first
        const int32_t *listed
        float *logits
        int32_t *top_ids
        float *top_logits
        float *listed_logits
        float *peak
        float *log_sum_exp
    ctypedef struct mf_limits:
        int32_t max_tokens, max_logits, max_sequences, n_used, n_groups, n_slots
        const mf_cache_group *groups
        const int32_t *slot_group
        const int32_t *slot_index
    ctypedef struct mf_target:
        float *data
        int64_t n_positions
    ctypedef struct mf_kernels:
        const char *name
    const mf_kernels *mf_kernels_at(int index)
    int mf_activation_of(int type)
    int64_t mf_activation_bytes(int kind, int64_t k)
    int64_t mf_weight_bytes(int type, int64_t rows, int64_t k)
    mf_program *mf_program_new(int n_threads, const char *isa)
    void mf_program_free(mf_program *program)
    const char *mf_program_isa(const mf_program *program)
    int mf_program_reserve(mf_program *program, int64_t weight_bytes, int32_t n_matrices, int32_t n_vectors)
    int mf_program_map(mf_program *program, int file, int64_t offset)
    int mf_program_save(const mf_program *program, int file)
    int mf_program_matrix(mf_program *program, int32_t index, int type, int64_t rows, int64_t k, int64_t offset)
    int mf_program_load_matrix(mf_program *program, int32_t index, const void *source, int is_mapped)
    int mf_program_vector(mf_program *program, int32_t index, int type, int64_t n, const void *source,
                          int64_t offset)
    int mf_program_finish(mf_program *program, const mf_operation *operations, int32_t n_operations,
                          const mf_value *values, int32_t n_values, int64_t buffer_bytes, const mf_limits *limits)
    int mf_program_run(mf_program *program, const mf_batch *batch, mf_cache *cache, const mf_query *query,
                       int (*cancel)(void *) noexcept nogil, void *cancel_context, int64_t cancel_interval)
    int64_t mf_program_value(const mf_program *program, int32_t value, int32_t order, float *target)
    int mf_program_probabilities(mf_program *program, int32_t operation, int32_t sequence, const mf_batch *batch,
                                 mf_cache *cache, const mf_target *target)
    mf_cache *mf_cache_new(const mf_cache_group *groups, int32_t n_groups, const int64_t *n_blocks)
    void mf_cache_free(mf_cache *cache)
    int64_t mf_cache_bytes(const mf_cache *cache)
    int64_t mf_cache_block_bytes(const mf_cache_group *group)
    int mf_cache_copy(mf_cache *cache, int32_t group, int64_t source, int64_t target)
    int mf_cache_read(const mf_cache *cache, int32_t group, int64_t block, uint8_t *data)
    int mf_cache_write(mf_cache *cache, int32_t group, int64_t block, const uint8_t *data)

TILE_ROWS = MF_TILE_ROWS
CHUNK_POSITIONS = MF_CHUNK_POSITIONS
MOST_EXPERTS = 1024
MOST_GROUPS = 64
OK, CANCELLED, NO_MEMORY, BAD_BATCH, BAD_PROGRAM = range(5)


def isas():
    """The instruction sets this machine runs, fastest first."""
    names = []
    cdef int index = 0
    while mf_kernels_at(index) is not NULL:
        names.append(mf_kernels_at(index).name.decode())
        index += 1
    return tuple(names)


def activation_of(int type):
    return mf_activation_of(type)


def activation_bytes(int kind, int64_t k):
    return mf_activation_bytes(kind, k)


def weight_bytes(int type, int64_t rows, int64_t k):
    return mf_weight_bytes(type, rows, k)


cdef class Bytes:
    """A held buffer of at least `n_bytes`; size -1 when any length will do."""

    cdef Py_buffer view
    cdef bint is_held

    def __cinit__(self, source, int64_t n_bytes=-1, bint is_written=False):
        PyObject_GetBuffer(source, &self.view, PyBUF_WRITABLE if is_written else PyBUF_SIMPLE)
        self.is_held = True
        if n_bytes >= 0 and self.view.len < n_bytes:
            raise ValueError(f"a buffer of {self.view.len} bytes where {n_bytes} are needed")

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(&self.view)


def cache_block_bytes(group):
    """Bytes of one block of one slot; `group` as mf_cache_group."""
    cdef Bytes held = Bytes(group, 24)
    return mf_cache_block_bytes(<const mf_cache_group *>held.view.buf)


cdef class Cache:
    """Owns an mf_cache."""

    cdef mf_cache *cache

    def __cinit__(self, groups, int32_t n_groups, n_blocks):
        cdef Bytes specs = Bytes(groups, 24 * n_groups)
        cdef Bytes counts = Bytes(n_blocks, 8 * n_groups)
        self.cache = mf_cache_new(<const mf_cache_group *>specs.view.buf, n_groups,
                                  <const int64_t *>counts.view.buf)
        if self.cache is NULL:
            raise MemoryError

    def __dealloc__(self):
        mf_cache_free(self.cache)

    def n_bytes(self):
        return mf_cache_bytes(self.cache)

    def copy(self, int32_t group, int64_t source, int64_t target):
        return mf_cache_copy(self.cache, group, source, target)

    def read(self, int32_t group, int64_t block, target, int64_t n_bytes):
        cdef Bytes held = Bytes(target, n_bytes, True)
        return mf_cache_read(self.cache, group, block, <uint8_t *>held.view.buf)

    def write(self, int32_t group, int64_t block, data, int64_t n_bytes):
        cdef Bytes held = Bytes(data, n_bytes)
        return mf_cache_write(self.cache, group, block, <const uint8_t *>held.view.buf)


cdef class Batch:
    """An mf_batch and the buffers it points into."""

    cdef mf_batch batch
    cdef list held
    cdef const int32_t **tables
    cdef int64_t *lengths
    cdef mf_sequence *sequences

    def __cinit__(self, batch, int32_t n_groups, int64_t width):
        cdef int32_t n = len(batch.sequences), i, g
        cdef Bytes table
        self.held = []
        self.batch.n_tokens = len(batch.cache_pos)
        self.batch.n_logits = len(batch.logit_rows)
        self.batch.n_sequences = n
        self.batch.rope_pos = self.integers(batch.rope_pos, self.batch.n_tokens)
        self.batch.cache_pos = self.integers(batch.cache_pos, self.batch.n_tokens)
        self.batch.logit_rows = self.integers(batch.logit_rows, self.batch.n_logits)
        if batch.rows is None:
            self.batch.ids = self.integers(batch.ids, self.batch.n_tokens)
        else:
            self.batch.rows = <const float *>self.hold(batch.rows, 4 * width * self.batch.n_tokens)
        self.sequences = <mf_sequence *>calloc(n + 1, sizeof(mf_sequence))
        self.tables = <const int32_t **>calloc(n * n_groups + 1, sizeof(int32_t *))
        self.lengths = <int64_t *>calloc(n * n_groups + 1, sizeof(int64_t))
        if self.sequences is NULL or self.tables is NULL or self.lengths is NULL:
            raise MemoryError
        for i, sequence in enumerate(batch.sequences):
            self.sequences[i].first_row = sequence.first_row
            self.sequences[i].n_rows = sequence.n_rows
            self.sequences[i].length_before = sequence.length_before
            if len(sequence.block_tables) != n_groups:
                raise ValueError(f"{len(sequence.block_tables)} block tables for {n_groups} cache groups")
            for g, blocks in enumerate(sequence.block_tables):
                table = Bytes(blocks)
                self.held.append(table)
                self.tables[i * n_groups + g] = <const int32_t *>table.view.buf
                self.lengths[i * n_groups + g] = table.view.len // 4
        self.batch.sequences = self.sequences
        self.batch.block_tables = self.tables
        self.batch.table_lengths = self.lengths

    cdef const void *hold(self, source, int64_t n_bytes) except? NULL:
        cdef Bytes held = Bytes(source, n_bytes)
        self.held.append(held)
        return held.view.buf

    cdef const int32_t *integers(self, source, int64_t n) except? NULL:
        return <const int32_t *>self.hold(source, 4 * n)

    def __dealloc__(self):
        free(self.sequences)
        free(self.tables)
        free(self.lengths)


cdef int ask(void *context) noexcept with gil:
    """Whether the step shall stop: yes when asked to, and when asking fails."""
    question = <list>context
    try:
        return 1 if question[0]() else 0
    except BaseException as error:
        question.append(error)
        return 1


cdef class Program:
    """Owns an mf_program. Methods that can fail give a status."""

    cdef mf_program *program

    def __cinit__(self, int n_threads, isa):
        cdef bytes name = isa.encode()
        self.program = mf_program_new(n_threads, name)
        if self.program is NULL:
            raise MemoryError

    def __dealloc__(self):
        mf_program_free(self.program)

    def reserve(self, int64_t weight_bytes, int32_t n_matrices, int32_t n_vectors):
        return mf_program_reserve(self.program, weight_bytes, n_matrices, n_vectors)

    def matrix(self, int32_t index, int type, int64_t rows, int64_t k, int64_t offset):
        return mf_program_matrix(self.program, index, type, rows, k, offset)

    def load_matrix(self, int32_t index, source, int64_t n_bytes, bint is_mapped):
        cdef Bytes held = Bytes(source, n_bytes)
        cdef int status
        with nogil:
            status = mf_program_load_matrix(self.program, index, held.view.buf, is_mapped)
        return status

    def map(self, int file, int64_t offset):
        """The arena is a file's from here on: nothing can be loaded into it any more."""
        return mf_program_map(self.program, file, offset)

    def save(self, int file):
        """Write the arena. Raises OSError."""
        cdef int error
        with nogil:
            error = mf_program_save(self.program, file)
        if error:
            raise OSError(error, os.strerror(error))

    def vector(self, int32_t index, int type, int64_t n, source, int64_t offset, int64_t n_bytes):
        """source: None when the arena holds the numbers."""
        if source is None:
            return mf_program_vector(self.program, index, type, n, NULL, offset)
        cdef Bytes held = Bytes(source, n_bytes)
        return mf_program_vector(self.program, index, type, n, held.view.buf, offset)

    def finish(self, operations, values, int64_t buffer_bytes, numbers, groups, slots):
        """numbers: max_tokens, max_logits, max_sequences, n_used; slots: (group, index) arrays."""
        cdef Bytes packed = Bytes(operations), placed = Bytes(values), specs = Bytes(groups)
        cdef Bytes slot_group = Bytes(slots[0]), slot_index = Bytes(slots[1])
        cdef mf_limits limits
        limits.max_tokens, limits.max_logits, limits.max_sequences, limits.n_used = numbers
        limits.n_groups = <int32_t>(specs.view.len // 24)
        limits.n_slots = <int32_t>(slot_group.view.len // 4)
        limits.groups = <const mf_cache_group *>specs.view.buf
        limits.slot_group = <const int32_t *>slot_group.view.buf
        limits.slot_index = <const int32_t *>slot_index.view.buf
        return mf_program_finish(self.program, <const mf_operation *>packed.view.buf,
                                 <int32_t>(packed.view.len // sizeof(mf_operation)),
                                 <const mf_value *>placed.view.buf,
                                 <int32_t>(placed.view.len // sizeof(mf_value)), buffer_bytes, &limits)

    def run(self, Batch batch, Cache cache, int32_t top, listed, outputs, question, int64_t interval):
        """listed: (offsets, ids, logits out) or None; outputs: logits, or ids and logits, then peak and lse.

        question: a list whose first item is asked whether to stop, or None; an error in it is appended.
        """
        cdef mf_query query
        cdef Bytes first, second, peak, total
        cdef Bytes offsets, ids, values
        cdef int64_t n = batch.batch.n_logits
        cdef int status
        cdef void *context = NULL
        cdef int (*cancel)(void *) noexcept nogil
        cancel = NULL
        query.top = top
        query.listed_first = NULL
        query.listed = NULL
        query.listed_logits = NULL
        query.logits = NULL
        query.top_ids = NULL
        query.top_logits = NULL
        if listed is not None:
            offsets = Bytes(listed[0], 4 * (n + 1))
            ids = Bytes(listed[1])
            values = Bytes(listed[2], ids.view.len, True)
            query.listed_first = <const int32_t *>offsets.view.buf
            query.listed = <const int32_t *>ids.view.buf
            query.listed_logits = <float *>values.view.buf
        if top == 0:
            first = Bytes(outputs[0], 0, True)
            query.logits = <float *>first.view.buf
        else:
            first = Bytes(outputs[0], 4 * n * top, True)
            second = Bytes(outputs[1], 4 * n * top, True)
            query.top_ids = <int32_t *>first.view.buf
            query.top_logits = <float *>second.view.buf
        peak = Bytes(outputs[2], 4 * n, True)
        total = Bytes(outputs[3], 4 * n, True)
        query.peak = <float *>peak.view.buf
        query.log_sum_exp = <float *>total.view.buf
        if question is not None:
            cancel = ask
            context = <void *>question
        with nogil:
            status = mf_program_run(self.program, &batch.batch, cache.cache, &query, cancel, context, interval)
        return status

    def value(self, int32_t value, int32_t order, target):
        cdef Bytes held = Bytes(target, -1, True)
        return mf_program_value(self.program, value, order, <float *>held.view.buf)

    def probabilities(self, int32_t operation, int32_t sequence, Batch batch, Cache cache, target,
                      int64_t n_positions):
        cdef Bytes held = Bytes(target, -1, True)
        cdef mf_target goal
        goal.data = <float *>held.view.buf
        goal.n_positions = n_positions
        return mf_program_probabilities(self.program, operation, sequence, &batch.batch, cache.cache, &goal)
