from .errors import UseError as UseError
from .language_model import LanguageModel as LanguageModel
from .language_model import TextStream as TextStream
from .loading import load as load
from .wanted import Constraint as Constraint
from .wanted import Each as Each
from .wanted import Grammar as Grammar
from .wanted import Regex as Regex
