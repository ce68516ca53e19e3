"""Vue's single-file components: TypeScript, which JavaScript is too, between `<script>` and `</script>`."""

from dataclasses import replace

from midfill_infill.languages import typescript
from midfill_infill.languages.components import blank_markup

LANGUAGE = replace(
    typescript.LANGUAGE, id="vue", title="Vue", extensions=(".vue",), interfaces=(), read_within=blank_markup
)
