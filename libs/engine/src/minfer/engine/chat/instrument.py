"""Changes to a template's syntax tree, so that the sandbox sees operations it would not see otherwise."""

from __future__ import annotations

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.visitor


class Instrument(jinja2.visitor.NodeTransformer):
    """Puts our functions around the operations that the environment does not see otherwise."""

    def visit_For(self, node: jinja2.nodes.For) -> jinja2.nodes.Node:  # noqa: N802
        node = self.generic_visit(node)  # type: ignore[assignment]
        node.iter = _call("counted", node.iter)  # type: ignore[arg-type]  # Jinja declares any node
        return node

    def visit_Concat(self, node: jinja2.nodes.Concat) -> jinja2.nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("concatenate", *node.nodes)

    def visit_List(self, node: jinja2.nodes.List) -> jinja2.nodes.Node:  # noqa: N802
        return self._literal(node)

    def visit_Dict(self, node: jinja2.nodes.Dict) -> jinja2.nodes.Node:  # noqa: N802
        return self._literal(node)

    def visit_Tuple(self, node: jinja2.nodes.Tuple) -> jinja2.nodes.Node:  # noqa: N802
        return self._literal(node) if node.ctx == "load" else self.generic_visit(node)

    def visit_Compare(self, node: jinja2.nodes.Compare) -> jinja2.nodes.Node:  # noqa: N802
        self.generic_visit(node)
        operands = [node.expr, *(operand.expr for operand in node.ops)]
        has_constant = any(isinstance(operand, jinja2.nodes.Const) for operand in operands)
        if not has_constant or any(operand.op in {"in", "notin"} for operand in node.ops):
            node.expr = _call("compared", node.expr)
            for operand in node.ops:
                operand.expr = _call("compared", operand.expr)
        return node

    def visit_Getitem(self, node: jinja2.nodes.Getitem) -> jinja2.nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if isinstance(node.arg, jinja2.nodes.Slice):
            node.node = _call("sliced", node.node)
        return node

    def visit_ScopedEvalContextModifier(  # noqa: N802
        self, node: jinja2.nodes.ScopedEvalContextModifier
    ) -> jinja2.nodes.Node:
        raise jinja2.TemplateSyntaxError("autoescape is for web pages, not for prompts", node.lineno)

    def _literal(self, node: jinja2.nodes.Expr) -> jinja2.nodes.Node:
        self.generic_visit(node)
        return _call("literal", node)


def _call(name: str, *args: jinja2.nodes.Expr) -> jinja2.nodes.Call:
    function = jinja2.nodes.EnvironmentAttribute(name)
    call = jinja2.nodes.Call(function, list(args), [], None, None)
    call.set_lineno(args[0].lineno, override=True)
    return call


class GenerationTag(jinja2.ext.Extension):
    """{% generation %} … {% endgeneration %}: marks text for training; here it is a plain block."""

    tags = frozenset({"generation"})  # type: ignore[assignment]

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=lineno)
