// The rho dialect: what is computed. No threads, no memory, no order.
#ifndef RHO_DIALECT_TD
#define RHO_DIALECT_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Rho_Dialect : Dialect {
  let name = "rho";
  let cppNamespace = "::rho::ir";
  let summary = "quantized matrix products as algebra on formats";
  let useDefaultTypePrinterParser = 1;
}

def Rho_Tensor : TypeDef<Rho_Dialect, "Tensor"> {
  let mnemonic = "tensor";
  let summary = "numbers over named axes";
  let description = [{
    `axes` names what the numbers are indexed by: letters of n, m and k, an axis divided by a group
    as in "n k/128", or "" for a single number. `element` is a type of the language ("s4", "f16",
    "f32", "s32") or "real" before placement.
  }];
  let parameters = (ins StringRefParameter<"axes">:$axes, StringRefParameter<"type">:$element);
  let assemblyFormat = "`<` $axes `,` $element `>`";
}

class Rho_Op<string mnemonic, list<Trait> traits = []> : Op<Rho_Dialect, mnemonic, traits>;

def Rho_GemmOp : Rho_Op<"gemm", [Symbol, IsolatedFromAbove, SingleBlock, NoTerminator]> {
  let summary = "one gemm with its formats, plan and body";
  let description = [{
    y[m,n] = sum over k of activation[m,k] * weight[n,k]. `weight` and `activation` are canonical
    format texts, `plan` is the plan's canonical text. Before placement the body is one
    `rho.contract` of two real operands; afterwards it spells out where each factor is applied.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrAttr:$weight, StrAttr:$activation,
                       StrAttr:$output, StrAttr:$plan);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword $body";
  let hasVerifier = 1;
}

def Rho_OperandOp : Rho_Op<"operand", [Pure]> {
  let summary = "an operand as real numbers, its format not yet taken apart";
  let arguments = (ins StrAttr:$role);
  let results = (outs Rho_Tensor:$result);
  let assemblyFormat = "$role attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Rho_ContractOp : Rho_Op<"contract", [Pure]> {
  let summary = "the matrix product before placement";
  let arguments = (ins Rho_Tensor:$weight, Rho_Tensor:$activation);
  let results = (outs Rho_Tensor:$result);
  let assemblyFormat = "$weight `,` $activation attr-dict `:` functional-type(operands, results)";
}

def Rho_ComponentOp : Rho_Op<"component", [Pure]> {
  let summary = "the stored codes of one component of an operand, or of the weight's residual";
  let arguments = (ins StrAttr:$role, StrAttr:$component);
  let results = (outs Rho_Tensor:$result);
  let assemblyFormat = "$role $component attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Rho_DecodeOp : Rho_Op<"decode", [Pure]> {
  let summary = "stored codes to operands of the matrix instruction";
  let description = [{
    Applies the core of the value expression, and scales placed on the operand, by the straight-line
    program `program`. `forms[i]` says in which form parameter i enters: "byte.H", "bytes.H",
    "places.H", "multiplier.H", "pairs.H", "pairs_begin.H" or, of a rho.number, "number.H", "choices.H"
    or "pairs.H" (DecodeParam) with the fragment row half H, 0 or 1; ".1" behind it where the second
    half of an instruction's k has a group of its own. The result holds values times 2^log2_factor.
  }];
  let arguments = (ins Rho_Tensor:$codes, Variadic<Rho_Tensor>:$parameters, StrArrayAttr:$forms,
                       StrAttr:$program, I64Attr:$log2_factor);
  let results = (outs Rho_Tensor:$result);
  let assemblyFormat = [{
    $codes (`with` `(` $parameters^ `)`)? `forms` $forms `program` $program
    `log2_factor` $log2_factor attr-dict
    `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def Rho_NumberOp : Rho_Op<"number", [Pure]> {
  let summary = "a sum of products of components of a weight row";
  let description = [{
    `terms` is such as "1*#1*#2 + -8", where #i is operand i, counted from 1. Computed in f32 and
    rounded to the result's element type.
  }];
  let arguments = (ins Variadic<Rho_Tensor>:$components, StrAttr:$terms);
  let results = (outs Rho_Tensor:$result);
  let assemblyFormat = [{
    `(` $components `)` `terms` $terms attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def Rho_SplitOp : Rho_Op<"split", [Pure]> {
  let summary = "codes of which one is remapped as the sum of two operands";
  let description = [{
    `main` has another code in place of the remapped one, `rest` has there what is missing and zero
    elsewhere. `pairs` are both codes, main | rest << 4, for each code of the selector, -1 where they
    are those of a component.
  }];
  let arguments = (ins Rho_Tensor:$codes, Rho_Tensor:$selector, DenseI32ArrayAttr:$pairs);
  let results = (outs Rho_Tensor:$main, Rho_Tensor:$rest);
  let assemblyFormat = [{
    $codes `by` $selector `pairs` $pairs attr-dict `:` functional-type(operands, results)
  }];
}

def Rho_MmaOp : Rho_Op<"mma", [Pure, AttrSizedOperandSegments]> {
  let summary = "matrix multiply-accumulate over k, or over each group of k";
  let description = [{
    The result's axes are "n m" for a sum over all of k and "n m k/G" for one partial sum per group.
    Operands with a scale are multiplied by it, in the instruction, before they are multiplied. A
    rest is added to its operand: each sum is one of two or four products.
  }];
  let arguments = (ins Rho_Tensor:$weight, Rho_Tensor:$activation,
                       Optional<Rho_Tensor>:$weightScale, Optional<Rho_Tensor>:$activationScale,
                       Optional<Rho_Tensor>:$weightRest, Optional<Rho_Tensor>:$activationRest);
  let results = (outs Rho_Tensor:$result);
  let assemblyFormat = [{
    $weight `,` $activation (`weight_scale` $weightScale^)? (`activation_scale` $activationScale^)?
    (`weight_rest` $weightRest^)? (`activation_rest` $activationRest^)? attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def Rho_ScaleOp : Rho_Op<"scale", [Pure]> {
  let summary = "multiply by scales, broadcast over the axes that they lack";
  let arguments = (ins Rho_Tensor:$value, Rho_Tensor:$scale);
  let results = (outs Rho_Tensor:$result);
  let assemblyFormat = "$value `by` $scale attr-dict `:` functional-type(operands, results)";
}

def Rho_ReduceOp : Rho_Op<"reduce", [Pure]> {
  let summary = "sum the partial sums of all groups";
  let arguments = (ins Rho_Tensor:$value);
  let results = (outs Rho_Tensor:$result);
  let assemblyFormat = "$value attr-dict `:` functional-type(operands, results)";
}

def Rho_SumOp : Rho_Op<"sum", [Pure]> {
  let summary = "the sum of the products with each part of a partition, each times a factor";
  let description = [{
    Each k of the activation is stored in one part: a product sums over the k of its own.
  }];
  let arguments = (ins Variadic<Rho_Tensor>:$values, F64ArrayAttr:$factors);
  let results = (outs Rho_Tensor:$result);
  let assemblyFormat = "`(` $values `)` `times` $factors attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Rho_AddOp : Rho_Op<"add", [Pure]> {
  let summary = "the products of a weight and of its residual, each times a factor, added";
  let arguments = (ins Rho_Tensor:$value, F64Attr:$factor, Rho_Tensor:$residual,
                       F64Attr:$residualFactor);
  let results = (outs Rho_Tensor:$result);
  let assemblyFormat = [{
    $value `times` $factor `,` $residual `times` $residualFactor attr-dict
    `:` functional-type(operands, results)
  }];
}

def Rho_ReturnOp : Rho_Op<"return", []> {
  let summary = "the result, times `factor`, rounded to the gemm's output type";
  let arguments = (ins Rho_Tensor:$value, F64Attr:$factor);
  let assemblyFormat = "$value `times` $factor attr-dict `:` type($value)";
}

#endif // RHO_DIALECT_TD
