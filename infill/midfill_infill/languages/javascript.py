"""JavaScript, JSX included: one grammar reads both. TypeScript has the same names, line breaks and headers."""

from midfill_infill.languages.language import Language

_GLOBALS = frozenset(
    """
    AbortController Array ArrayBuffer BigInt Boolean Buffer DataView Date Error EvalError Event Float32Array
    Float64Array FormData Function Headers Infinity Int16Array Int32Array Int8Array Intl JSON Map Math NaN Number Object
    Promise Proxy RangeError ReferenceError Reflect RegExp Request Response Set String Symbol SyntaxError TextDecoder
    TextEncoder TypeError URIError URL URLSearchParams Uint16Array Uint32Array Uint8Array WeakMap WeakRef WeakSet
    clearInterval clearTimeout console decodeURIComponent document encodeURIComponent exports fetch globalThis
    isFinite isNaN module navigator parseFloat parseInt performance process queueMicrotask require setImmediate
    setInterval setTimeout structuredClone undefined window __dirname __filename arguments super this
    AbortSignal AggregateError BigInt64Array BigUint64Array Blob BroadcastChannel CSSStyleSheet CustomEvent DOMException
    DOMParser DOMRect Document DocumentFragment Element EventSource EventTarget File FileReader FinalizationRegistry
    HTMLElement IntersectionObserver KeyboardEvent MessageChannel MessageEvent MessagePort MouseEvent MutationObserver
    Node NodeList PointerEvent ReadableStream ResizeObserver ShadowRoot SharedArrayBuffer Storage SubmitEvent Text
    TextDecoderStream TextEncoderStream TouchEvent TransformStream Uint8ClampedArray WebAssembly WebSocket Window Worker
    WritableStream alert atob btoa cancelAnimationFrame crypto customElements eval history localStorage location
    requestAnimationFrame sessionStorage
    Awaited Exclude Extract NonNullable Omit Parameters Partial Pick Readonly ReadonlyArray Record Required ReturnType
    any bigint boolean never number object string symbol unknown void
    """.split()
)
_NAMES = _GLOBALS.union(
    """
    abs apply argv assign at bind call catch ceil charAt charCodeAt codePointAt concat constructor create cwd data
    debug defineProperty delete done endsWith entries env error every exec exit fill filter finally find findIndex
    flat flatMap floor forEach freeze from fromCharCode fromEntries get getTime has hasOwnProperty hypot includes
    indexOf info isArray isInteger isSafeInteger iterator join keys lastIndexOf length log map match matchAll max
    message min name next normalize now of on once parse pop pow prototype push random reason reduce reduceRight
    reject repeat replace replaceAll resolve reverse round set shift sign size slice some sort splice split sqrt
    stack startsWith stringify substring test then toFixed toISOString toLocaleString toLowerCase toString
    toUpperCase trim trimEnd trimStart trunc unshift value valueOf values warn
    """.split()
)
# Line breaks that matter: behind or before these words and signs, and before a bracket, where they end no statement.
_LINE_END = rb"""(?<![\w$.])(?:return|throw|break|continue|yield|async)\n|\n(?:\+\+|--|=>)|[\w$)\]"'`]\n[(\[`]"""
_EXPORTED = rb"[ \t]*(?:export[ \t]+)?(?:default[ \t]+)?"
_HEADER = _EXPORTED + rb"(?:async[ \t]+)?function\b[ \t]*\*?[ \t]*([\w$]+)"
_SCOPE_HEADER = _EXPORTED + rb"(?:(?:abstract[ \t]+)?class|(?:async[ \t]+)?function\b[ \t]*\*?)[ \t]*([\w$]+)"

LANGUAGE = Language(
    id="javascript",
    title="JavaScript",
    extensions=(".js", ".jsx", ".mjs", ".cjs"),
    grammar="tree_sitter_javascript:language",
    queries=("ecmascript.scm", "javascript.scm"),
    indent="  ",
    heads=("midfill; midfill", "var midfill of midfill", "midfill; midfill; midfill"),
    finds_unbound=True,
    globals=_GLOBALS,
    names=_NAMES,
    rules=("rules/ecmascript.scm", "rules/javascript.scm"),
    header=_HEADER,
    scope_header=_SCOPE_HEADER,
    line_end=_LINE_END,
    joining_brackets=(b"(", b"["),
)
