/*
 * Filters in C, correct and incorrect ones. Each returns a row
 * of the type that it is declared to return, or of another one.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/memutils.h"

PG_MODULE_MAGIC;

/* The descriptor of the function's result, cached in fn_extra. */
static TupleDesc
row_of(FunctionCallInfo fcinfo)
{
	TupleDesc	row = (TupleDesc) fcinfo->flinfo->fn_extra;

	if (row == NULL)
	{
		MemoryContext before = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);
		TupleDesc	given;

		if (get_call_result_type(fcinfo, NULL, &given) != TYPEFUNC_COMPOSITE)
			elog(ERROR, "not a row");
		row = BlessTupleDesc(CreateTupleDescCopy(given));
		fcinfo->flinfo->fn_extra = row;
		MemoryContextSwitchTo(before);
	}
	return row;
}

static Datum
form(FunctionCallInfo fcinfo, TupleDesc row)
{
	Datum		values[MaxTupleAttributeNumber];
	bool		nulls[MaxTupleAttributeNumber];

	for (int i = 0; i < row->natts; i++)
	{
		nulls[i] = i >= PG_NARGS() || PG_ARGISNULL(i);
		values[i] = nulls[i] ? (Datum) 0 : PG_GETARG_DATUM(i);
	}
	return HeapTupleGetDatum(heap_form_tuple(row, values, nulls));
}

/* Returns the row unchanged. */
PG_FUNCTION_INFO_V1(filter_same);
Datum
filter_same(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(form(fcinfo, row_of(fcinfo)));
}

/* Returns the row unchanged, and NULL if the first column is 10n + 3. */
PG_FUNCTION_INFO_V1(filter_some);
Datum
filter_some(PG_FUNCTION_ARGS)
{
	if (!PG_ARGISNULL(0) && PG_GETARG_INT32(0) % 10 == 3)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(form(fcinfo, row_of(fcinfo)));
}

/* Returns NULL. */
PG_FUNCTION_INFO_V1(filter_none);
Datum
filter_none(PG_FUNCTION_ARGS)
{
	PG_RETURN_NULL();
}

/* Raises an error if the first column is 7. */
PG_FUNCTION_INFO_V1(filter_picky);
Datum
filter_picky(PG_FUNCTION_ARGS)
{
	if (PG_GETARG_INT32(0) == 7)
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("not 7"), errdetail("Of all numbers."),
				errhint("Try 8."), errcontext("a function in C"));
	PG_RETURN_DATUM(form(fcinfo, row_of(fcinfo)));
}

/* Returns the first row for all rows, in the same memory, which the caller must not write to. */
PG_FUNCTION_INFO_V1(filter_one_row);
Datum
filter_one_row(PG_FUNCTION_ARGS)
{
	if (fcinfo->flinfo->fn_extra == NULL)
	{
		MemoryContext before;
		TupleDesc	row = row_of(fcinfo);

		before = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);
		fcinfo->flinfo->fn_extra = DatumGetPointer(form(fcinfo, row));
		MemoryContextSwitchTo(before);
	}
	PG_RETURN_POINTER(fcinfo->flinfo->fn_extra);
}

/* A tuple with fewer columns than the type that it claims, as from a function that was written before ADD COLUMN. */
PG_FUNCTION_INFO_V1(filter_shorter);
Datum
filter_shorter(PG_FUNCTION_ARGS)
{
	TupleDesc	row = row_of(fcinfo);
	TupleDesc	first = CreateTemplateTupleDesc(row->natts - 1);
	HeapTupleHeader tuple;

	for (int i = 1; i < row->natts; i++)
		TupleDescCopyEntry(first, i, row, i);
	tuple = DatumGetHeapTupleHeader(form(fcinfo, BlessTupleDesc(first)));
	HeapTupleHeaderSetTypeId(tuple, row->tdtypeid);
	HeapTupleHeaderSetTypMod(tuple, row->tdtypmod);
	PG_RETURN_HEAPTUPLEHEADER(tuple);
}

/* A record, which from the fifth row on has only numbers. */
PG_FUNCTION_INFO_V1(filter_record);
Datum
filter_record(PG_FUNCTION_ARGS)
{
	bool		is_other = PG_GETARG_INT32(0) >= 5;
	TupleDesc	row = CreateTemplateTupleDesc(2);
	Datum		values[2] = {PG_GETARG_DATUM(0), PG_GETARG_DATUM(1)};
	bool		nulls[2] = {PG_ARGISNULL(0), PG_ARGISNULL(1)};

	TupleDescInitEntry(row, 1, "a", INT4OID, -1, 0);
	TupleDescInitEntry(row, 2, "b", is_other ? INT8OID : TEXTOID, -1, 0);
	if (is_other)
		values[1] = Int64GetDatum(1094795585);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(row), values, nulls)));
}

/* At a first column of 2, the function alters the type of the rows. */
PG_FUNCTION_INFO_V1(filter_altering);
Datum
filter_altering(PG_FUNCTION_ARGS)
{
	TupleDesc	row = CreateTemplateTupleDesc(2);
	bool		is_altered = PG_GETARG_INT32(0) >= 2;
	Datum		values[2] = {PG_GETARG_DATUM(0), PG_GETARG_DATUM(1)};
	bool		nulls[2] = {false, false};
	HeapTupleHeader tuple;
	Oid			type;

	get_call_result_type(fcinfo, &type, NULL);
	TupleDescInitEntry(row, 1, "a", INT4OID, -1, 0);
	TupleDescInitEntry(row, 2, "b", is_altered ? INT8OID : TEXTOID, -1, 0);
	if (is_altered)
		values[1] = Int64GetDatum(1094795585);
	if (PG_GETARG_INT32(0) == 2)
	{
		SPI_connect();
		SPI_execute("ALTER TYPE altered ALTER ATTRIBUTE b TYPE int8", false, 0);
		SPI_finish();
	}
	tuple = DatumGetHeapTupleHeader(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(row), values, nulls)));
	HeapTupleHeaderSetTypeId(tuple, type);
	HeapTupleHeaderSetTypMod(tuple, -1);
	PG_RETURN_HEAPTUPLEHEADER(tuple);
}

/* A row that claims the function's type, and from the fifth row on has another one: two numbers. */
PG_FUNCTION_INFO_V1(filter_liar);
Datum
filter_liar(PG_FUNCTION_ARGS)
{
	TupleDesc	row = row_of(fcinfo);
	HeapTupleHeader tuple = DatumGetHeapTupleHeader(filter_record(fcinfo));

	HeapTupleHeaderSetTypeId(tuple, row->tdtypeid);
	HeapTupleHeaderSetTypMod(tuple, row->tdtypmod);
	PG_RETURN_HEAPTUPLEHEADER(tuple);
}

/* Returns its argument: the same memory. */
PG_FUNCTION_INFO_V1(filter_whole);
Datum
filter_whole(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(PG_GETARG_DATUM(0));
}

/* The same, but NULL if the first column is 10n + 3, and a copy if it is 10n + 4. */
PG_FUNCTION_INFO_V1(filter_whole_some);
Datum
filter_whole_some(PG_FUNCTION_ARGS)
{
	bool		is_null;
	HeapTupleHeader row = PG_GETARG_HEAPTUPLEHEADER(0);
	int32		first = DatumGetInt32(GetAttributeByNum(row, 1, &is_null));

	if (!is_null && first % 10 == 3)
		PG_RETURN_NULL();
	if (!is_null && first % 10 == 4)
		row = PG_GETARG_HEAPTUPLEHEADER_COPY(0);
	PG_RETURN_HEAPTUPLEHEADER(row);
}

/* Forms a new row from all columns. */
PG_FUNCTION_INFO_V1(filter_whole_anew);
Datum
filter_whole_anew(PG_FUNCTION_ARGS)
{
	HeapTupleHeader row = PG_GETARG_HEAPTUPLEHEADER(0);
	TupleDesc	type = row_of(fcinfo);
	HeapTupleData tuple = {.t_len = HeapTupleHeaderGetDatumLength(row), .t_data = row};
	Datum		values[MaxTupleAttributeNumber];
	bool		nulls[MaxTupleAttributeNumber];

	if (HeapTupleHeaderGetTypeId(row) != type->tdtypeid || HeapTupleHeaderGetTypMod(row) != type->tdtypmod)
		elog(ERROR, "type %u, typmod %d", HeapTupleHeaderGetTypeId(row), HeapTupleHeaderGetTypMod(row));
	heap_deform_tuple(&tuple, type, values, nulls);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(type, values, nulls)));
}

/* Allocates a megabyte that is never used, in a new context, and fails if too much is allocated already. */
PG_FUNCTION_INFO_V1(filter_children);
Datum
filter_children(PG_FUNCTION_ARGS)
{
	Size		taken = MemoryContextMemAllocated(CurrentMemoryContext, true);

	if (taken > 2 * 1024 * 1024)
		elog(ERROR, "%zu bytes are in use", taken);
	MemoryContextAlloc(AllocSetContextCreate(CurrentMemoryContext, "child", ALLOCSET_DEFAULT_SIZES), 1024 * 1024);
	PG_RETURN_DATUM(form(fcinfo, row_of(fcinfo)));
}

/* Allocates a megabyte that is never used, and fails if too much is allocated already. */
PG_FUNCTION_INFO_V1(filter_greedy);
Datum
filter_greedy(PG_FUNCTION_ARGS)
{
	Size		taken = MemoryContextMemAllocated(CurrentMemoryContext, true);

	if (taken > 4 * 1024 * 1024)
		elog(ERROR, "%zu bytes are in use", taken);
	memset(palloc(1024 * 1024), 'x', 1024 * 1024);
	PG_RETURN_DATUM(form(fcinfo, row_of(fcinfo)));
}
