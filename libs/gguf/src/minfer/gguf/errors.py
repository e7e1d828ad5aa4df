"""Everything a model file can get wrong, each with its own code.

ModelFileError
├── ModelFileMissingError      nothing at the path
├── ModelFileUnreadableError   the system refuses to open it, or it is no regular file
├── ModelIsDirectoryError      a folder; `candidates` are the model files in it
├── NotGGUFError               some other format
│   ├── GitLFSPointerError     the note that Git LFS leaves in place of the file
│   └── WebPageError           a page or a server's error text, saved under the model's name
├── GGUFVersionError           a version this reader does not know
├── BigEndianError             written for a big-endian machine
├── TruncatedFileError         ends before its header or its tensors do
├── CorruptFileError           its own statements cannot be true together
├── TensorTypeError            a tensor's storage type is unknown or has no decoder
├── TensorMissingError         a tensor that was asked for is not there
├── MetadataKeyError           a metadata key that is needed is not there
├── MetadataTypeError          a metadata value has another type than its key needs
├── SplitPartMissingError      a part of a split set is not beside the others
└── SplitMismatchError         the parts beside each other do not belong together
"""

from __future__ import annotations

from minfer.core.errors import ModelFileError

DOWNLOAD_AGAIN = "download the file again; the copy here is not the one that was published"


class ModelFileMissingError(ModelFileError):
    """Nothing is at the path."""

    code = "model-file-missing"


class ModelFileUnreadableError(ModelFileError):
    """The system refuses to open the file, or it is no regular file."""

    code = "model-file-unreadable"


class ModelIsDirectoryError(ModelFileError):
    """The path is a folder; `candidates` holds the paths of the models in it."""

    code = "model-is-directory"


class NotGGUFError(ModelFileError):
    """The file has some other format."""

    code = "not-gguf"


class GitLFSPointerError(NotGGUFError):
    """The file is the note that Git LFS leaves in place of the content."""

    code = "git-lfs-pointer"


class WebPageError(NotGGUFError):
    """The file is a web page or a server's error text."""

    code = "web-page"


class GGUFVersionError(ModelFileError):
    """The file's version of the format is not one this reader knows."""

    code = "unsupported-gguf-version"


class BigEndianError(ModelFileError):
    """The file was written for a big-endian machine."""

    code = "big-endian-gguf"


class TruncatedFileError(ModelFileError):
    """The file ends too early; `needed_bytes` is the least length that would let reading go on."""

    code = "truncated-file"

    def __init__(self, fact: str, *, needed_bytes: int, hint: str = DOWNLOAD_AGAIN) -> None:
        """`needed_bytes`: how long the file would have to be for the part that was being read."""
        super().__init__(fact, hint=hint)
        self.needed_bytes = needed_bytes


class CorruptFileError(ModelFileError):
    """Statements in the file contradict the format or each other."""

    code = "corrupt-file"

    def __init__(self, fact: str, *, hint: str = DOWNLOAD_AGAIN) -> None:
        super().__init__(fact, hint=hint)


class TensorTypeError(ModelFileError):
    """A tensor is stored in a type that is unknown or has no decoder."""

    code = "unsupported-tensor-type"


class TensorMissingError(ModelFileError):
    """The file has no tensor of the name."""

    code = "tensor-missing"


class MetadataKeyError(ModelFileError):
    """The file lacks a metadata key."""

    code = "metadata-key-missing"


class MetadataTypeError(ModelFileError):
    """The value of a metadata key has another type than is needed."""

    code = "metadata-type"


class SplitPartMissingError(ModelFileError):
    """Parts of a split set are absent; the fact names them."""

    code = "split-part-missing"


class SplitMismatchError(ModelFileError):
    """Files that are named as parts of one set do not belong together."""

    code = "split-parts-disagree"
