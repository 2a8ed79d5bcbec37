"""Register TensorFlow's other names: oneDNN's kernels, random numbers, nodes that only run a graph."""

from __future__ import annotations

from typing import Final

from opscope.core.perf.registry import Cost, also, as_name, lookup, op, words
from opscope.core.perf.shapes import cost
from opscope.core.schema import OpCall

#: Ops with oneDNN kernels: ``_MklNativeMaxPool`` is ``MaxPool``.
_ONEDNN: Final = words(
    """
    MaxPool MaxPoolGrad MaxPool3D MaxPool3DGrad AvgPool AvgPoolGrad AvgPool3D AvgPool3DGrad Softmax
    Transpose Relu ReluGrad Relu6 Relu6Grad Elu EluGrad LeakyRelu LeakyReluGrad Tanh TanhGrad Add
    AddV2 AddN Sub Mul Maximum Squared SquaredDifference Concat ConcatV2 Slice Reshape Identity
    Conv2D Conv3D Conv2DBackpropInput Conv2DBackpropFilter Conv3DBackpropInputV2
    Conv3DBackpropFilterV2 DepthwiseConv2dNative DepthwiseConv2dNativeBackpropInput
    DepthwiseConv2dNativeBackpropFilter MatMul BatchMatMul BatchMatMulV2 FusedBatchNorm
    FusedBatchNormV2 FusedBatchNormV3 FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3
    Conv2DBackpropFilterWithBias Conv3DBackpropFilterWithBias LayerNorm Swish Quantize Dequantize
    """
)
_SAME: Final = {
    "StatelessTruncatedNormalV2": "TruncatedNormal",
    "StatelessTruncatedNormal": "TruncatedNormal",
    "StatelessRandomUniformInt": "RandomUniformInt",
    "StatelessRandomUniformIntV2": "RandomUniformInt",
    "StatelessRandomNormal": "RandomStandardNormal",
    "BitwiseAnd": "LogicalAnd",
    "BitwiseOr": "LogicalOr",
    "BitwiseXor": "LogicalOr",
    "LeftShift": "LogicalAnd",
    "RightShift": "LogicalAnd",
}
#: Arguments, results, control flow, iterators, handles: they compute no element.
_RUNS: Final = words(
    """
    _Send _Recv _HostSend _HostRecv Enter Exit Merge Switch RefEnter RefExit RefMerge RefSwitch
    NextIteration LoopCond ControlTrigger VarIsInitializedOp VariableShape DestroyResourceOp
    IteratorGetNext IteratorGetNextSync IteratorGetNextAsOptional IteratorV2 Iterator MakeIterator
    AnonymousIterator AnonymousIteratorV2 AnonymousIteratorV3 OneShotIterator DeleteIterator
    IteratorToStringHandle OptionalHasValue OptionalGetValue OptionalFromValue OptionalNone
    StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg StatelessRandomGetAlg
    TensorSliceDataset RangeDataset RepeatDataset PrefetchDataset MapDataset ParallelMapDataset
    ParallelMapDatasetV2 BatchDatasetV2 ShuffleDatasetV3 ZipDataset FlatMapDataset TakeDataset
    TensorDataset OptionsDataset ModelDataset OptimizeDatasetV2 MaxIntraOpParallelismDataset
    PrivateThreadPoolDataset RewriteDataset CacheDataset CacheDatasetV2 ConcatenateDataset
    TensorListReserve TensorListLength EmptyTensorList TensorListElementShape DisableCopyOnRead
    StatelessWhile StatelessIf Case StatelessCase ReadVariableXlaSplitND
    """
)

#: For each ATen op, the names of the nodes that have the same operands in the same order.
_ATEN: Final = {
    "aten::sin": "Angle ComplexAbs BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1 BesselK0 "
    "BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 Dawsn Expint FresnelCos FresnelSin Spence Erfinv "
    "Ndtri Invert PopulationCount",
    "aten::_conj_physical": "Conj",
    "aten::complex": "Complex",
    "aten::atan2": "Atan2 NextAfter TruncateDiv TruncateMod Igamma Igammac Polygamma Zeta",
    "aten::addcmul": "Betainc",
    "aten::mul": "MulNoNan",
    "aten::xlogy": "Xlogy",
    "aten::special_xlog1py": "Xlog1py",
    "aten::logical_not": "ToBool",
    "aten::elu_backward": "SeluGrad",
    "aten::tanh_backward": "SoftsignGrad",
    "aten::norm": "EuclideanNorm",
    "aten::cumsum": "CumulativeLogsumexp",
    "aten::bincount": "Bincount DenseBincount",
    "aten::histc": "HistogramFixedWidth",
    "aten::searchsorted": "LowerBound UpperBound",
    "aten::bucketize": "Bucketize",
    "aten::unique": "Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2",
    "aten::topk": "ApproxTopK InTopK InTopKV2",
    "aten::kthvalue": "NthElement",
    "aten::fft_fft": "FFT IFFT BatchFFT BatchIFFT",
    "aten::fft_fft2": "FFT2D IFFT2D BatchFFT2D BatchIFFT2D",
    "aten::fft_rfft": "RFFT",
    "aten::fft_rfft2": "RFFT2D",
    "aten::fft_irfft": "IRFFT",
    "aten::fft_irfft2": "IRFFT2D",
    "aten::cholesky": "BatchCholesky",
    "aten::linalg_lu": "Lu",
    "aten::slogdet": "LogMatrixDeterminant",
    "aten::det": "MatrixDeterminant BatchMatrixDeterminant",
    "aten::matrix_exp": "MatrixExponential",
    "aten::linalg_inv": "BatchMatrixInverse",
    "aten::linalg_solve": "BatchMatrixSolve",
    "aten::linalg_lstsq": "MatrixSolveLs BatchMatrixSolveLs",
    "aten::linalg_solve_triangular": "BatchMatrixTriangularSolve",
    "aten::linalg_eigh": "SelfAdjointEig SelfAdjointEigV2 BatchSelfAdjointEig BatchSelfAdjointEigV2",
    "aten::linalg_eig": "Eig",
    "aten::linalg_svd": "BatchSvd",
    "aten::cross": "Cross",
    "aten::diag": "Diag MatrixDiag MatrixDiagV2 MatrixDiagV3 BatchMatrixDiag ExtractImagePatches "
    "ExtractVolumePatches LinSpace Fill RaggedRange BroadcastArgs",
    "aten::diagonal_scatter": "MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 BatchMatrixSetDiag",
    "aten::clone": "Reverse BatchToSpace BatchMatrixBandPart Real Imag RandomShuffle "
    "StatelessShuffle DeepCopy",
    "aten::reflection_pad2d_backward": "MirrorPadGrad",
    "aten::gather": "ResourceGatherNd",
    "aten::scatter": "TensorScatterUpdate",
    "aten::scatter_": "ScatterUpdate ScatterNdUpdate ResourceScatterUpdate ResourceScatterNdUpdate "
    "InplaceUpdate",
    "aten::scatter_add": "ScatterNdNonAliasingAdd TensorScatterSub TensorScatterMax TensorScatterMin "
    "TensorScatterMul TensorScatterDiv",
    "aten::scatter_add_": "ScatterSub ScatterMul ScatterDiv ScatterMax ScatterMin ScatterNdSub "
    "ScatterNdMax ScatterNdMin InplaceAdd InplaceSub ResourceScatterSub ResourceScatterMul "
    "ResourceScatterDiv ResourceScatterMax ResourceScatterMin ResourceScatterNdAdd ResourceScatterNdSub "
    "ResourceScatterNdMax ResourceScatterNdMin",
    "aten::uniform": "StatefulUniform StatefulUniformInt StatefulUniformFullInt "
    "StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2",
    "aten::normal": "StatefulStandardNormal StatefulStandardNormalV2 StatefulTruncatedNormal "
    "ParameterizedTruncatedNormal StatelessParameterizedTruncatedNormal",
    "aten::poisson": "RandomPoisson RandomPoissonV2 StatelessRandomPoisson",
    "aten::_standard_gamma": "RandomGamma StatelessRandomGammaV2 StatelessRandomGammaV3 RandomGammaGrad",
    "aten::binomial": "StatefulRandomBinomial StatelessRandomBinomial",
    "aten::multinomial": "Multinomial StatelessMultinomial",
    "aten::fake_quantize_per_tensor_affine_cachemask_backward": "FakeQuantWithMinMaxArgsGradient "
    "FakeQuantWithMinMaxVarsGradient FakeQuantWithMinMaxVarsPerChannelGradient "
    "QuantizeAndDequantizeV4Grad",
    "c10d::allreduce_": "CollectiveReduceV3 NcclReduce CrossReplicaSum",
    "c10d::_reduce_scatter_base_": "CollectiveReduceScatterV2",
    "c10d::_allgather_base_": "CollectiveGatherV2",
    "c10d::alltoall_base_": "CollectiveAllToAllV2 CollectiveAllToAllV3",
    "c10d::broadcast_": "CollectiveBcastSendV2 CollectiveBcastRecvV2 NcclBroadcast",
    "c10d::send": "CollectivePermute",
}
#: Node names by the graph node that has the same operands.
_KNOWN: Final = {
    "MatMul": "QuantizedMatMulWithBias QuantizedMatMulWithBiasAndRelu "
    "QuantizedMatMulWithBiasAndReluAndRequantize QuantizedMatMulWithBiasAndRequantize "
    "QuantizedMatMulWithBiasAndDequantize SparseMatrixMatMul",
    "Conv2D": "QuantizedConv2D QuantizedConv2DAndRelu QuantizedConv2DAndReluAndRequantize "
    "QuantizedConv2DAndRequantize QuantizedConv2DPerChannel QuantizedConv2DWithBias "
    "QuantizedConv2DWithBiasAndRelu QuantizedConv2DWithBiasAndReluAndRequantize "
    "QuantizedConv2DWithBiasAndRequantize QuantizedConv2DWithBiasSignedSumAndReluAndRequantize "
    "QuantizedConv2DWithBiasSumAndRelu QuantizedConv2DWithBiasSumAndReluAndRequantize FusedPadConv2D "
    "FusedResizeAndPadConv2D",
    "DepthwiseConv2dNative": "QuantizedDepthwiseConv2D QuantizedDepthwiseConv2DWithBias "
    "QuantizedDepthwiseConv2DWithBiasAndRelu QuantizedDepthwiseConv2DWithBiasAndReluAndRequantize",
    "MaxPool": "QuantizedMaxPool FractionalMaxPool",
    "AvgPool": "QuantizedAvgPool",
    "Relu": "QuantizedRelu",
    "Relu6": "QuantizedRelu6 QuantizedReluX",
    "Add": "QuantizedAdd QuantizedBiasAdd BiasAddV1",
    "Mul": "QuantizedMul",
    "ConcatV2": "QuantizedConcat DynamicStitch ParallelDynamicStitch",
    "Reshape": "QuantizedReshape",
    "ResizeBilinear": "QuantizedResizeBilinear ScaleAndTranslate ImageProjectiveTransformV2 "
    "ImageProjectiveTransformV3",
    "ResizeBilinearGrad": "ScaleAndTranslateGrad CropAndResizeGradImage",
    "BatchNorm": "BatchNormWithGlobalNormalization QuantizedBatchNormWithGlobalNormalization "
    "QuantizedInstanceNorm",
    "FakeQuantWithMinMaxVars": "FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVarsPerChannel "
    "QuantizeAndDequantize QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4 "
    "QuantizeDownAndShrinkRange "
    "Requantize RequantizePerChannel UniformQuantize UniformRequantize UniformDequantize",
    "ResourceApplyAdam": "ResourceApplyAdamWithAmsgrad ApplyAdaMax ResourceApplyAdaMax",
    "ResourceApplyAdagrad": "ApplyAdagradV2 ApplyAdagradDA ResourceApplyAdagradDA ApplyProximalAdagrad "
    "ResourceApplyProximalAdagrad",
    "ResourceApplyMomentum": "ApplyAddSign ResourceApplyAddSign ApplyPowerSign ResourceApplyPowerSign "
    "ApplyKerasMomentum",
    "ResourceApplyGradientDescent": "ApplyProximalGradientDescent ResourceApplyProximalGradientDescent",
    "ResourceApplyRMSProp": "ApplyCenteredRMSProp",
    "ResourceApplyFtrl": "ApplyFtrlV2",
    "Slice": "MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 BatchMatrixDiagPart DiagPart RandomCrop "
    "DynamicPartition "
    "TensorArrayReadV3 TensorArrayWriteV3 TensorArrayGatherV3 "
    "TensorArrayScatterV3 TensorArrayConcatV3 TensorArraySplitV3 TensorListConcat TensorListConcatV2 "
    "TensorListSplit TensorListScatter TensorListScatterV2 TensorListPushBackBatch TensorListConcatLists "
    "StackPopV2 StackPushV2 Stage Unstage RaggedGather RaggedTensorToTensor UnravelIndex",
}
#: Work of the host: files, strings, tables, records, queues. It has no FLOPs, and no shape shows its bytes.
_HOST: Final = words(
    """
    ReadFile WriteFile MatchingFiles Save SaveV2 SaveSlices Restore RestoreV2 RestoreSlice
    MergeV2Checkpoints ShardedFilename ShardedFilespec ParseExample ParseExampleV2
    ParseSequenceExample ParseSequenceExampleV2 ParseSingleExample ParseSingleSequenceExample
    ParseTensor SerializeTensor DecodeRaw DecodePaddedRaw DecodeCSV DecodeBase64 EncodeBase64
    DecodeCompressed DecodeJSONExample DecodeProtoV2 EncodeProto AsString StringFormat StringJoin
    StringLength StringLower StringNGrams StringSplit StringSplitV2 StringStrip StringToHashBucket
    StringToHashBucketFast StringToHashBucketStrong StringToNumber StringUpper Substr ReduceJoin
    RegexFullMatch RegexReplace StaticRegexFullMatch StaticRegexReplace UnicodeDecode
    UnicodeDecodeWithOffsets UnicodeEncode UnicodeScript UnicodeTranscode Fingerprint HashTable
    HashTableV2 AnonymousHashTable MutableHashTable MutableHashTableV2 MutableHashTableOfTensors
    MutableDenseHashTable MutableDenseHashTableV2 AnonymousMutableHashTable
    AnonymousMutableDenseHashTable InitializeTable InitializeTableV2 InitializeTableFromTextFile
    InitializeTableFromTextFileV2 LookupTableFind LookupTableFindV2 LookupTableInsert
    LookupTableInsertV2 LookupTableRemoveV2 LookupTableExport LookupTableExportV2 LookupTableImport
    LookupTableImportV2 ScalarSummary HistogramSummary ImageSummary AudioSummary AudioSummaryV2
    TensorSummary TensorSummaryV2 MergeSummary WriteSummary WriteScalarSummary
    WriteHistogramSummary WriteImageSummary WriteAudioSummary WriteRawProtoSummary WriteGraphSummary
    FlushSummaryWriter CloseSummaryWriter CreateSummaryFileWriter CreateSummaryDbWriter
    SummaryWriter ImportEvent QueueEnqueue QueueEnqueueV2 QueueEnqueueMany QueueEnqueueManyV2
    QueueDequeue QueueDequeueV2 QueueDequeueMany QueueDequeueManyV2 QueueDequeueUpTo
    QueueDequeueUpToV2 PyFunc EagerPyFunc PyFuncStateless NumpyFunction Batch Unbatch BatchFunction
    ReduceDataset DatasetToSingleElement DatasetToTFRecord IteratorFromStringHandle
    IteratorFromStringHandleV2 MultiDeviceIteratorGetNextFromShard GetSessionHandle
    GetSessionHandleV2 GetSessionTensor
    """
)
#: Nodes that only run the graph or query the host.
_QUERIES: Final = words(
    """
    LookupTableSize LookupTableSizeV2 QueueSize QueueSizeV2 QueueClose QueueCloseV2 QueueIsClosed
    QueueIsClosedV2 FIFOQueue FIFOQueueV2 PaddingFIFOQueue PaddingFIFOQueueV2 RandomShuffleQueue
    RandomShuffleQueueV2 PriorityQueue PriorityQueueV2 Variable VariableV2 TemporaryVariable
    DestroyTemporaryVariable IsVariableInitialized TensorArray TensorArrayV2 TensorArrayV3
    TensorArrayGrad TensorArrayGradV2 TensorArrayGradV3 TensorArrayGradWithShape TensorArraySize
    TensorArraySizeV2 TensorArraySizeV3 TensorArrayClose TensorArrayCloseV2 TensorArrayCloseV3
    TensorListResize StackV2 StackClose StackCloseV2 TensorMapSize EmptyTensorMap ConcatOffset
    DebugIdentity DebugIdentityV2 DebugIdentityV3 DebugGradientIdentity DebugGradientRefIdentity
    GuaranteeConst FakeParam PlaceholderV2 ImmutableConst Empty RefIdentity RefNextIteration
    CheckNumericsV2 Print PrintV2 Timestamp Abort Recv _XlaRecvAtHost _XlaSendFromHost
    SymbolicGradient RemoteCall For CollectiveInitializeCommunicator CollectiveAssignGroupV2
    DataFormatDimMap DataFormatVecPermute RngSkip RngReadAndSkip DummySeedGenerator SyncDevice
    AnonymousSeedGenerator AnonymousRandomSeedGenerator DeleteSeedGenerator DeleteRandomSeedGenerator
    AnonymousMemoryCache DeleteMemoryCache DummyMemoryCache DatasetCardinality GlobalIterId
    MultiDeviceIterator MultiDeviceIteratorInit MultiDeviceIteratorToStringHandle IteratorGetDevice
    AnonymousMultiDeviceIterator AnonymousMultiDeviceIteratorV3 DeleteMultiDeviceIterator
    SerializeIterator DeserializeIterator WrapDatasetVariant UnwrapDatasetVariant XlaLaunch
    _XlaCompile _XlaRun XlaLaunchV2 MutexV2 MutexLock ConsumeMutexLock Barrier BarrierClose
    BatchDataset PaddedBatchDataset PaddedBatchDatasetV2 ParallelBatchDataset ShuffleDataset
    ShuffleDatasetV2 ShuffleAndRepeatDataset ShuffleAndRepeatDatasetV2 SkipDataset ShardDataset
    AutoShardDataset RebatchDataset RebatchDatasetV2 MapAndBatchDataset FilterDataset ScanDataset
    InterleaveDataset ParallelInterleaveDataset ParallelInterleaveDatasetV2
    ParallelInterleaveDatasetV3 ParallelInterleaveDatasetV4 LegacyParallelInterleaveDatasetV2
    TFRecordDataset TFRecordDatasetV2 TextLineDataset FixedLengthRecordDataset
    FixedLengthRecordDatasetV2 GeneratorDataset RandomDataset RandomDatasetV2 WindowDataset
    UnbatchDataset UniqueDataset GroupByWindowDataset GroupByReducerDataset TakeWhileDataset
    SnapshotDataset SnapshotDatasetV2 SaveDataset SaveDatasetV2 LoadDataset ListDataset
    SparseTensorSliceDataset MatchingFilesDataset OptimizeDataset FinalizeDataset
    IgnoreErrorsDataset NonSerializableDataset DirectedInterleaveDataset ChooseFastestDataset
    DataServiceDataset DataServiceDatasetV2 DataServiceDatasetV3 DataServiceDatasetV4
    RegisterDataset RegisterDatasetV2 GlobalShuffleDataset IndexFlatMapDataset WeightedFlatMapDataset
    ParseExampleDataset ParseExampleDatasetV2 ThreadPoolDataset ThreadPoolHandle SleepDataset
    SamplingDataset StatsAggregatorHandle StatsAggregatorHandleV2 LatencyStatsDataset
    BytesProducedStatsDataset SetStatsAggregatorDataset AssertCardinalityDataset
    """
)

for _other, _names in _KNOWN.items():
    also(_other, _names)
for _aten, _names in _ATEN.items():
    if _names:
        also(_aten, _names)
for _name in _ONEDNN:
    for _prefix in ("_Mkl", "_MklNative"):
        _known = lookup(_name)
        if _known is not None and lookup(_prefix + _name) is None:
            op(_prefix + _name, family=_known.family, source=f"as {_name}")(as_name(_name))
for _name, _other in _SAME.items():
    _known = lookup(_other)
    if _known is not None and lookup(_name) is None:
        op(_name, family=_known.family, source=f"as {_other}")(as_name(_other))


@op(*(name for name in _HOST if lookup(name) is None), family="host",
    source="work of the host: no FLOPs, bytes not known")  # fmt: skip
def host(call: OpCall) -> Cost:
    """Work on strings, files and tables, which have no shapes."""
    return cost(None, None, reason="work of the host: the shapes do not show its bytes")


@op(*(name for name in (*_RUNS, *_QUERIES) if lookup(name) is None), family="view", view=True,
    source="computes nothing")  # fmt: skip
def runs(call: OpCall) -> Cost:
    """A node that only runs the graph."""
    return Cost()
