from .batch_masks import BatchMasks as BatchMasks
from .jump_forward import forced_bytes as forced_bytes
from .matcher import Matcher as Matcher
from .response_format import FormatError as FormatError
from .response_format import ToolTags as ToolTags
from .response_format import compile_response_format as compile_response_format
from .structured_outputs import compile_structured_outputs as compile_structured_outputs
from .torch_processor import ConstraintLogitsProcessor as ConstraintLogitsProcessor
