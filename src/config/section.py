"""What all sections of the configuration are made of: the base model, names, texts in both languages."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

# Names become folder names, wildcards and table rows: nothing that a shell or a path would read.
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, values are never coerced from strings."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())


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
