"""What all sections of the configuration are made of: the base model, names, texts in both languages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

# Names become folder names, wildcards and table rows: nothing that a shell or a path would read.
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
# Its range is that of every generator that one is given to.
Seed = Annotated[int, Field(ge=0, lt=1 << 32)]
# Each is a start of a server: a typing error must not become a plan that fills the memory.
MOST_ROUNDS = 1000


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, values are never coerced from strings, numbers are finite."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=(), allow_inf_nan=False)


def check_once(what: str, names: Iterable[str]) -> None:
    """Refuse a list in which a name stands twice.

    Raises:
        ValueError: naming it.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what}: the name {name!r} is used twice; names must differ")
        seen.add(name)


class Text(Section):
    """A text in both report languages; a plain string stands for both."""

    en: str
    zh: str

    @model_validator(mode="before")
    @classmethod
    def _same_in_both(cls, value: object) -> object:
        return {"en": value, "zh": value} if isinstance(value, str) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, handler.resolve_ref_schema(handler(schema))]}
